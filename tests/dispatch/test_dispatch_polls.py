"""The answer to a poll in every situation, and the order of the checks."""

import asyncio
import io

import pytest
from tests.dispatch.dispatchharness import SPACE, Between, Guest, Harness, Onward, play

from runyard.components import server
from runyard.embedded.github.identity import KeyPair
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.kinds import PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.telemetry import log
from runyard.wire import names
from runyard.wire.paths import DISPATCH
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons_dispatch import Denied

STALE = {"spec": {"image": "vm:2"}}


async def roll(harness: Harness) -> None:
    await harness.admin.patch(RUNNER_POOLS, "mac", STALE, namespace=SPACE)
    await harness.server.shared.pools.refresh()


async def token_for(harness: Harness, guest: Guest, **changes: object) -> str:
    values = {
        "namespace": SPACE,
        "audience": names.DISPATCH_AUDIENCE,
        "seconds": 3600,
        "pod_name": guest.name,
        "pod_uid": guest.uid,
    }
    return await harness.admin.create_token(guest.name, **(values | changes))  # type: ignore[arg-type]  # many kinds of fields


def test_an_unauthenticated_caller_gets_401_with_a_reason(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        other = await token_for(harness, guest, audience="somebody-else")
        unbound = await token_for(harness, guest, pod_name="", pod_uid="")
        foreign = await harness.admin.create_token(
            "default"
            if harness.kube.find("serviceaccounts", "default", "default")
            else await made(harness),
            namespace="default",
            audience=names.DISPATCH_AUDIENCE,
            seconds=3600,
        )
        errors = {}
        for name, header in {
            "nothing": "",
            "no bearer": "Basic abc",
            "empty": "Bearer ",
            "garbage": "Bearer abc.def.ghi",
            "not ascii": "Bearer \udce9\u00e9",
            "another audience": f"Bearer {other}",
            "not bound to a Pod": f"Bearer {unbound}",
            "another namespace": f"Bearer {foreign}",
        }.items():
            answer = await harness.ask("POST", DISPATCH, b"{}", (("authorization", header),))
            assert answer.status == 401, name
            errors[name] = answer.json()["error"]
        assert errors == {
            "nothing": "missing bearer token",
            "no bearer": "missing bearer token",
            "empty": "missing bearer token",
            "garbage": "invalid token",
            "not ascii": "invalid token",
            "another audience": "invalid token",
            "not bound to a Pod": "token is not bound to its Pod",
            "another namespace": "not a service account",
        }
        assert harness.rows("SELECT * FROM slots") == []

    async def made(harness: Harness) -> str:
        body = {"metadata": {"name": "somebody"}}
        await harness.admin.create(SERVICE_ACCOUNTS, body, namespace="default")
        return "somebody"

    play(scenario, database_url, app_keys)


def test_a_service_account_without_a_pool_or_gone_gets_401(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        body = {"metadata": {"labels": {names.RUNNER_POOL: None}}}
        await harness.admin.patch(SERVICE_ACCOUNTS, guest.name, body, namespace=SPACE)
        answer = await harness.poll(guest)
        assert (answer.status, answer.json()["code"]) == (401, Denied.ACCOUNT_WITHOUT_POOL)

        async def vanish(request: Request, onward: Onward) -> Response | Stream:
            if request.method == "GET" and "serviceaccounts" in request.path:
                return json_response(404, {"kind": "Status", "code": 404, "reason": "NotFound"})
            return await onward()

        harness.kube_wire.tamper = vanish
        answer = await harness.poll(guest)
        assert (answer.status, answer.json()["code"]) == (401, Denied.ACCOUNT_DELETED)

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    ("labels", "rolled", "status"),
    [
        ({names.OPERATOR_DRAIN: "true"}, False, 410),
        ({names.OPERATOR_DRAIN: "true", names.DRAIN_ELIGIBLE: "true"}, True, 410),
        ({names.DRAIN_ELIGIBLE: "true"}, True, 410),
        ({names.DRAIN_ELIGIBLE: "true"}, False, 204),
        ({names.DRAIN_ELIGIBLE: "false"}, True, 204),
        ({}, True, 204),
        ({}, False, 204),
    ],
    ids=[
        "a person wants it gone",
        "both",
        "stale and its turn",
        "its turn, not stale",
        "stale, label says no",
        "stale and not its turn",
        "neither",
    ],
)
def test_only_an_administrator_or_the_operator_drains(
    database_url: str, app_keys: KeyPair, labels: dict[str, str], rolled: bool, status: int
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod(**labels)
        if rolled:
            await roll(harness)
        answer = await harness.poll(guest)
        assert answer.status == status
        if status == 410:
            person = names.OPERATOR_DRAIN in labels
            reason = "operator drain" if person else "image stale"
            assert answer.json() == {"error": "drain", "reason": reason}
            assert harness.slot(guest) == {}, "a Pod that is drained opens no slot"

    play(scenario, database_url, app_keys)


def test_a_stale_pod_that_is_not_eligible_still_gets_jobs(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await roll(harness)
        await harness.armed(guest)
        assert (await harness.poll(guest)).status == 200

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("how", ["500", "lost", "404", "another uid"])
def test_an_unreadable_pod_is_not_stale(database_url: str, app_keys: KeyPair, how: str) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod(**{names.OPERATOR_DRAIN: "true"})

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            answer = await onward()
            if request.method != "GET" or "/pods/" not in request.path:
                return answer
            if how == "lost":
                raise OutcomeUnknown("lost")
            if how == "another uid":
                assert isinstance(answer, Response)
                body = answer.json()
                body["metadata"]["uid"] = "another"
                return json_response(200, body)
            return json_response(int(how), {})

        harness.kube_wire.tamper = tamper
        assert (await harness.poll(guest)).status == 204

    play(scenario, database_url, app_keys)


def test_a_jit_is_delivered_again_to_its_own_pod_only(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest, other = await harness.pod(1), await harness.pod(2)
        job = await harness.armed(guest)
        first, second = await harness.poll(guest), await harness.poll(guest)
        assert first.status == second.status == 200 and first.body == second.body
        assert first.json()["workflow_job_id"] == job
        assert (await harness.poll(other)).status == 204
        # The sealed value cannot be opened in another row.
        await harness.armed(other)
        harness.execute(
            "UPDATE slots SET jit = (SELECT jit FROM slots WHERE pod_uid = %s) WHERE pod_uid = %s",
            guest.uid,
            other.uid,
        )
        assert (await harness.poll(other)).status == 500

    play(scenario, database_url, app_keys)


def test_a_pod_that_has_had_its_job_is_drained(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        await harness.armed(guest)
        session = harness.github.connect(await harness.jit(guest))
        await harness.github.settle()
        assert harness.slot(guest)["state"] == "executing"
        committed = {"error": "drain", "reason": "pod already committed"}
        answer = await harness.poll(guest)
        assert (answer.status, answer.json()) == (410, committed)
        session.finish("success")  # type: ignore[union-attr]  # it connected
        await harness.github.settle()
        assert harness.slot(guest)["state"] == "draining"
        answer = await harness.poll(guest, wait=20)
        assert (answer.status, answer.json()) == (410, committed)

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    ("prefer", "waited"),
    [
        ("wait=3", 3.0),
        ("WAIT=3", 3.0),
        ("wait=0", 0.0),
        ("wait=-4", 0.0),
        ("wait=100000", 25.0),
        ("wait=inf", 25.0),
        ("wait=nan", 0.0),
        ("wait=soon", 5.0),
        ("respond-async", 5.0),
        ("", 5.0),
    ],
)
def test_a_poll_is_held_as_long_as_the_client_prefers(
    database_url: str, app_keys: KeyPair, prefer: str, waited: float
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        began = harness.clock.monotonic()
        headers = (("authorization", f"Bearer {guest.token}"), ("prefer", prefer))
        answer = await harness.ask("POST", DISPATCH, b"{}", headers)
        assert answer.status == 204 and answer.body == b""
        assert harness.clock.monotonic() - began == pytest.approx(waited)

    play(scenario, database_url, app_keys)


def test_a_database_that_is_down_is_500_and_kubernetes_503(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()

        async def down(request: Request, onward: Onward) -> Response | Stream:
            raise OutcomeUnknown("no API")

        harness.kube_wire.tamper = down
        answer = await harness.poll(guest)
        assert (answer.status, answer.json()["code"]) == (503, ProblemCode.KUBERNETES_UNAVAILABLE)
        harness.kube_wire.tamper = None
        harness.database.down = True
        answer = await harness.poll(guest)
        assert (answer.status, answer.json()["code"]) == (500, ProblemCode.DISPATCH_DATABASE)
        harness.database.down = False
        assert (await harness.poll(guest)).status == 204
        # An accepted token is cached: a short outage of the API fails no poll.
        harness.kube_wire.tamper = down
        assert (await harness.poll(guest)).status == 204

    play(scenario, database_url, app_keys)


def test_a_poll_that_waits_is_answered_as_soon_as_its_runner_is_armed(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        async with harness.waiting(guest) as (poll,):
            await harness.queued()
            await harness.match()
            again = asyncio.create_task(harness.poll(guest, wait=9))  # polls again during the mint
            await harness.clock.sleep(0.01)
            before = harness.clock.monotonic()
            await harness.mint()
            answer, second = await poll, await again
            assert harness.clock.monotonic() - before < 1.5
        assert answer.status == second.status == 200 and answer.body == second.body
        assert len(harness.github.runners()) == 1

    play(scenario, database_url, app_keys)


def test_nothing_is_claimed_for_a_closed_connection(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        job = await harness.queued()
        async with harness.waiting(guest):
            pass  # connection closed
        await harness.match()
        assert (harness.slot(guest)["state"], harness.job(job)["state"]) == ("idle", "queued")

    play(scenario, database_url, app_keys)


def test_nothing_is_claimed_for_a_connection_that_closes_during_the_match(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        polls: list[asyncio.Task[Response]] = []

        async def hang_up(name: str) -> None:
            if name == "match":
                return
            for poll in polls if name == "claim" else ():
                poll.cancel()
            await harness.clock.sleep(0.01)

        slow = Between(harness.database, hang_up)
        harness.server = server.wire(harness.deps(database=slow))
        harness.handle = harness.server.intake.api.handle
        await harness.pool()
        guests = [await harness.pod(number) for number in (1, 2, 3)]
        for _ in guests:
            await harness.queued()
        async with harness.waiting(*guests) as found:
            await harness.clock.sleep(0.1)
            polls += found
            await harness.match()  # all connections close just before the claims
        states = [harness.slot(guest)["state"] for guest in guests]
        assert states == ["idle", "idle", "idle"]

    play(scenario, database_url, app_keys)


def test_a_token_of_another_pod_is_not_accepted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod()
        body = {
            "metadata": {"name": "other"},
            "spec": {
                "serviceAccountName": guest.name,
                "containers": [{"name": "runner", "image": "vm:1"}],
            },
        }
        made = await harness.admin.create(PODS, body, namespace=SPACE)
        bound = {"pod_name": "other", "pod_uid": made["metadata"]["uid"]}
        answer = await harness.poll(Guest("other", "", await token_for(harness, guest, **bound)))
        assert (answer.status, answer.json()["code"]) == (401, Denied.TOKEN_UNBOUND)

    play(scenario, database_url, app_keys)


def test_a_late_poll_of_an_old_pod_does_not_close_its_successor(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        first = await harness.pod()
        assert (await harness.poll(first)).status == 204
        await harness.delete_pod(first)
        second = await harness.pod_only(first.name)
        await harness.armed(second)
        assert harness.slot(first)["state"] == "closed"
        assert (await harness.poll(first)).status == 410  # its token is still cached
        assert harness.slot(second)["state"] == "armed"

    play(scenario, database_url, app_keys)


def test_no_jit_and_no_token_reaches_the_log(database_url: str, app_keys: KeyPair) -> None:
    lines = io.StringIO()
    log.configure(level="debug", stream=lines)
    try:

        async def scenario(harness: Harness) -> str:
            await harness.pool()
            guest = await harness.pod()
            async with harness.running():
                harness.queue()
                answer = await harness.poll(guest, wait=20)
                await harness.clock.sleep(30)
                await harness.poll(guest)
                return str(answer.json()["encoded_jit_config"]) + " " + guest.token

        jit, token = play(scenario, database_url, app_keys).split()
    finally:
        log.configure(level="critical")
    assert jit[:40] not in lines.getvalue() and token[:40] not in lines.getvalue()
