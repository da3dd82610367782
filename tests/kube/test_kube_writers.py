"""Leases and events: small writers that must survive a race and a lost answer."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.kube.kubesupport import Recorded, VirtualClock, dice, refusal

from runyard.http.errors import NotSent
from runyard.http.messages import Request, Response, json_response
from runyard.kube.client import Kube
from runyard.kube.errors import NotFound, ServerFailed
from runyard.kube.events import REMEMBERED, Recorder
from runyard.kube.kinds import NODES, PODS
from runyard.kube.lease import renew_lease
from runyard.kube.objects import Meta


class Answers(Recorded):
    """Returns its answers in turn, for any request."""

    def __init__(self, *answers: Response | Exception) -> None:
        self._queue = list(answers)
        super().__init__(self._next)

    def _next(self, request: Request) -> Response:
        answer = self._queue.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.requests]

    def body(self, number: int) -> dict[str, Any]:
        return dict(msgspec.json.decode(self.requests[number].body))


OK = json_response(200, {"metadata": {"name": "x"}})


def renew(*answers: Response | Exception) -> Answers:
    transport = Answers(*answers)
    kube = Kube(transport)
    asyncio.run(
        renew_lease(
            kube, name="host", namespace="kube-node-lease", holder="host", duration=40, now=1.5
        )
    )
    return transport


def test_a_lease_is_renewed_with_one_request() -> None:
    sent = renew(OK)
    assert sent.methods == ["PATCH"]
    assert sent.requests[0].path.endswith("/namespaces/kube-node-lease/leases/host")
    assert sent.body(0) == {
        "spec": {
            "holderIdentity": "host",
            "leaseDurationSeconds": 40,
            "renewTime": "1970-01-01T00:00:01.500000Z",
        }
    }


def test_an_absent_lease_is_created_and_a_race_for_it_is_survived() -> None:
    created = renew(refusal(404), OK)
    assert created.methods == ["PATCH", "POST"]
    assert created.body(1)["spec"]["acquireTime"] == "1970-01-01T00:00:01.500000Z"
    assert created.body(1)["metadata"]["name"] == "host"
    assert renew(refusal(404), refusal(409, "AlreadyExists"), OK).methods[-1] == "PATCH"


def test_a_failed_renewal_is_raised_to_the_caller() -> None:
    with pytest.raises(ServerFailed):
        renew(refusal(500))
    with pytest.raises(NotSent):
        renew(NotSent("down"))


META = Meta(name="a", namespace="n", uid="u", resource_version="7")


def record(*answers: Response | Exception, messages: list[str]) -> Answers:
    transport = Answers(*answers)

    async def scenario() -> None:
        recorder = Recorder(Kube(transport), component="test", clock=VirtualClock(), rng=dice())
        for message in messages:
            await recorder.event(PODS, META, type="Normal", reason="Tested", message=message)

    asyncio.run(scenario())
    return transport


def test_an_event_names_its_object_and_its_own_name_depends_on_the_seed() -> None:
    hello = "hello"
    sent, again = record(OK, messages=[hello]), record(OK, messages=[hello])
    body = sent.body(0)
    assert sent.requests[0].path == "/api/v1/namespaces/n/events"
    assert body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert (body["reason"], body["message"], body["count"]) == ("Tested", hello, 1)
    assert body["source"] == {"component": "test"}
    assert body["metadata"]["name"].startswith("a.")
    assert body["metadata"]["name"] == again.body(0)["metadata"]["name"]


def test_a_repeated_event_is_counted() -> None:
    sent = record(OK, OK, OK, OK, messages=["x", "x", "y", "x"])
    assert sent.methods == ["POST", "PATCH", "POST", "PATCH"]
    assert [sent.body(n).get("count") for n in range(4)] == [1, 2, 1, 3]
    assert sent.requests[1].path.endswith(sent.body(0)["metadata"]["name"])


def test_a_series_is_one_event_with_the_latest_message() -> None:
    transport = Answers(OK, OK, OK)

    async def scenario() -> None:
        recorder = Recorder(Kube(transport), component="test", clock=VirtualClock(), rng=dice())
        for message, count in (("x", 3), ("y", 2), ("z", 1)):
            assert await recorder.latest(
                PODS, META, type="Normal", reason="Tested", message=message, count=count
            )

    asyncio.run(scenario())
    assert transport.methods == ["POST", "PATCH", "PATCH"]
    written = [(transport.body(n)["count"], transport.body(n)["message"]) for n in range(3)]
    assert written == [(3, "x"), (5, "y"), (6, "z")]


def test_an_event_that_the_server_deleted_is_created_again() -> None:
    sent = record(OK, refusal(404), OK, OK, messages=["x", "x", "x"])
    assert sent.methods == ["POST", "PATCH", "POST", "PATCH"]
    assert [sent.body(n)["count"] for n in range(4)] == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "failure",
    [refusal(403), refusal(500), refusal(422), NotSent("down"), Response(status=200, body=b"?")],
    ids=["403", "500", "422", "down", "garbage"],
)
def test_an_event_that_cannot_be_written_raises_nothing(failure: Response | Exception) -> None:
    assert record(failure, OK, messages=["x", "x"]).methods == ["POST", "POST"]


def test_events_of_cluster_wide_objects_and_long_messages() -> None:
    transport = Answers(OK)

    async def scenario() -> None:
        recorder = Recorder(Kube(transport), component="c", clock=VirtualClock(), rng=dice())
        meta = Meta(name="h" * 253)
        await recorder.event(NODES, meta, type="Warning", reason="R", message="m" * 5000)

    asyncio.run(scenario())
    body = transport.body(0)
    assert transport.requests[0].path == "/api/v1/namespaces/default/events"
    assert len(body["message"]) == 1024
    assert len(body["metadata"]["name"]) == 253


def test_the_memory_for_events_is_bounded() -> None:
    count = REMEMBERED + 5
    sent = record(*[OK] * (count + 2), messages=[*map(str, range(count)), "0", str(count - 1)])
    assert sent.methods[-2:] == ["POST", "PATCH"]


def test_not_found_is_an_error_of_its_own() -> None:
    with pytest.raises(NotFound):
        asyncio.run(Kube(Answers(refusal(404))).delete(PODS, "a", namespace="n"))
