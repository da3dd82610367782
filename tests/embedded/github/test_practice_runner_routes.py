"""The routes for runner programs, and repeated answers after a lost one."""

import asyncio
import base64
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.settings import PracticeSettings
from runyard.http.messages import Request, Response
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual

SESSION = "runner/session"


def connected(practice: Any, name: str = "a") -> str:
    answer = practice.open(practice.mint(name)[1])
    assert answer.status == 201, answer
    return str(answer.json()["session"])


def history(practice: Any, job_id: int) -> list[str]:
    return [entry.what for entry in practice.core.history(job_id)]


def ask(practice: Any, key: str, what: str) -> Response:
    answer = practice.practice_request("GET", f"{SESSION}/{what}", bearer=key)
    assert isinstance(answer, Response)
    return answer


def test_a_program_gets_its_job_sends_its_log_and_reports(practice: Any) -> None:
    key = connected(practice)
    assert ask(practice, key, "job").status == 204
    assert ask(practice, key, "cancelled").status == 409
    job_id = practice.core.queue_job(
        "acme/app", ("mac",), script="make test", job_name="unit", env={"A": "1"}
    )
    for _ in range(2):  # a client that lost the answer repeats the request
        order = ask(practice, key, "job").json()
        assert (order["id"], order["name"], order["repository"]) == (job_id, "unit", "acme/app")
        assert (order["script"], order["env"], order["log_size"]) == ("make test", {"A": "1"}, 0)
    assert ask(practice, key, "cancelled").status == 204
    for start, text in ((0, b"one "), (4, b"two"), (4, b"two"), (0, b"one two!")):
        answer = practice.practice_request(
            "POST", f"{SESSION}/log", bearer=key, raw=text, query={"offset": start}
        )
        assert answer.status == 200
    assert answer.json() == {"size": 8}
    for _ in range(2):
        answer = practice.practice_request(
            "PUT", f"{SESSION}/conclusion", {"conclusion": "failure"}, bearer=key
        )
        assert (answer.status, answer.json()) == (200, {"conclusion": "failure"})
    assert history(practice, job_id) == ["queued", "in_progress", "completed:failure"]
    assert practice.practice_request("GET", f"jobs/{job_id}/log").body == b"one two!"
    assert ask(practice, key, "job").status == 410
    assert not practice.core.runners()


def test_a_job_without_a_script_still_lasts_its_time(practice: Any) -> None:
    key = connected(practice)
    practice.core.queue_job("acme/app", ("mac",), duration=7)
    assert "sleep 7\n" in ask(practice, key, "job").json()["script"]


def test_the_jit_configuration_has_the_address_of_the_server(make_practice: Any) -> None:
    practice = make_practice(settings=PracticeSettings(public_url="http://127.0.0.1:1"))
    files = msgspec.json.decode(base64.b64decode(practice.mint("a")[1]))
    who = msgspec.json.decode(base64.b64decode(files[".runner"]))
    assert (who["serverUrl"], who["agentName"]) == ("http://127.0.0.1:1", "a")
    assert len(base64.b64decode(files[".credentials"])) == 24


def test_wrong_credentials_are_refused(practice: Any) -> None:
    runner_id, jit = practice.mint("a")
    assert practice.open("nonsense").status == 401
    assert practice.open("").status == 401
    assert practice.open(jit, "short").status == 422
    key = practice.open(jit).json()["session"]
    for bad in (jit, key + "x", key[:-1], f"{runner_id}.", "x", "ü"):
        assert practice.practice_request("GET", f"{SESSION}/job", bearer=bad).status == 401
    assert practice.practice_request("GET", f"{SESSION}/job", bearer="999999.x").status == 410


def test_a_deleted_registration_ends_the_session(practice: Any) -> None:
    runner_id, jit = practice.mint("a")
    key = practice.open(jit).json()["session"]
    assert practice.ask("DELETE", f"/orgs/acme/actions/runners/{runner_id}").status == 204
    assert ask(practice, key, "job").status == 410
    assert practice.open(jit).status == 401
    assert practice.practice_request("DELETE", SESSION, bearer=key).status == 204


def test_a_program_without_contact_is_lost_and_its_job_fails_later(practice: Any) -> None:
    key = connected(practice)
    job_id = practice.core.queue_job("acme/app", ("mac",))
    practice.clock.t += 29
    assert ask(practice, key, "cancelled").status == 204
    practice.clock.t += 29
    asyncio.run(practice.core.settle())
    assert history(practice, job_id) == ["queued", "in_progress"]
    practice.clock.t += 1
    asyncio.run(practice.core.settle())
    assert history(practice, job_id) == ["queued", "in_progress", "runner_lost"]
    practice.clock.t += 600
    asyncio.run(practice.core.settle())
    assert history(practice, job_id)[-1] == "completed:failure"
    answer = practice.practice_request(
        "PUT", f"{SESSION}/conclusion", {"conclusion": "success"}, bearer=key
    )
    assert answer.status == 410


def test_a_disconnected_program_can_return_to_its_job(practice: Any) -> None:
    key = connected(practice)
    job_id = practice.core.queue_job("acme/app", ("mac",))
    practice.clock.t += 60
    asyncio.run(practice.core.settle())
    practice.core.cancel_job(job_id)
    assert ask(practice, key, "job").json()["id"] == job_id
    assert ask(practice, key, "cancelled").status == 200
    practice.clock.t += 601  # it is connected again: no clock runs against it
    assert ask(practice, key, "cancelled").status == 200
    what = ["queued", "in_progress", "runner_lost", "cancel_requested", "runner_back"]
    assert history(practice, job_id)[:5] == what
    assert practice.core.jobs()[job_id].executions == 1


def test_another_start_of_a_connected_runner_is_refused(practice: Any) -> None:
    _, jit = practice.mint("a")
    assert practice.open(jit, "start-0001").status == 201
    assert practice.open(jit, "start-0002").status == 409
    assert practice.open(jit, "start-0001").status == 201  # the same one lost an answer


def test_another_start_takes_the_place_of_one_that_vanished_without_a_job(practice: Any) -> None:
    _, jit = practice.mint("a")
    old = practice.open(jit, "start-0001").json()["session"]
    practice.clock.t += 31
    assert practice.open(jit, "start-0002").status == 201
    job_id = practice.core.queue_job("acme/app", ("mac",))
    assert practice.core.jobs()[job_id].status == "in_progress"
    assert ask(practice, old, "job").status == 401
    assert practice.open(jit, "start-0001").status == 409


def test_a_job_never_gets_a_second_start(practice: Any) -> None:
    _, jit = practice.mint("a")
    practice.open(jit, "start-0001")
    job_id = practice.core.queue_job("acme/app", ("mac",))
    practice.clock.t += 31
    assert practice.open(jit, "start-0002").status == 403
    assert practice.core.jobs()[job_id].executions == 1


@pytest.mark.parametrize("given", [False, True], ids=["idle", "with-a-job-unseen"])
def test_the_job_of_a_program_that_signs_off_fails(practice: Any, *, given: bool) -> None:
    key = connected(practice)
    job_id = practice.core.queue_job("acme/app", ("mac" if given else "gpu",))
    for _ in range(2):
        assert practice.practice_request("DELETE", SESSION, bearer=key).status == 204
    job = practice.core.jobs()[job_id]
    assert (job.status, job.conclusion) == (("completed", "failure") if given else ("queued", None))
    assert [each.online for each in practice.core.runners().values()] == ([] if given else [False])


def test_a_delayed_request_does_not_reconnect_a_program_that_signed_off(practice: Any) -> None:
    _, jit = practice.mint("a")
    key = str(practice.open(jit, "start-0001").json()["session"])
    assert practice.practice_request("DELETE", SESSION, bearer=key).status == 204
    assert ask(practice, key, "job").status == 410  # it was sent first, and was slower
    assert practice.open(jit, "start-0001").status == 403
    (left,) = practice.core.runners().values()
    assert not left.online
    job_id = practice.core.queue_job("acme/app", ("mac",))
    assert history(practice, job_id) == ["queued"]
    again = str(practice.open(jit, "start-0002").json()["session"])  # the machine is there again
    assert ask(practice, again, "job").json()["id"] == job_id


def test_a_gap_in_the_log_is_refused_with_its_size(practice: Any) -> None:
    key = connected(practice)
    practice.core.queue_job("acme/app", ("mac",))
    path = f"{SESSION}/log"
    answer = practice.practice_request("POST", path, bearer=key, raw=b"x", query={"offset": 5})
    assert (answer.status, answer.json()["size"]) == (409, 0)
    assert practice.practice_request("POST", path, bearer=key, raw=b"x").status == 422
    long = b"x" * (64 * 1024 + 1)
    assert (
        practice.practice_request("POST", path, bearer=key, raw=long, query={"offset": 0}).status
        == 413
    )


def test_a_log_grows_to_its_limit_and_old_ones_are_forgotten(make_practice: Any) -> None:
    practice = make_practice(settings=PracticeSettings(log_limit=10, logs_kept=2))
    jobs = []
    for name in "abc":
        key = connected(practice, name)
        jobs.append(practice.core.queue_job("acme/app", ("mac",)))
        send = {"bearer": key, "raw": b"12345", "query": {"offset": 0}}
        assert practice.practice_request("POST", f"{SESSION}/log", **send).status == 200
        assert (
            practice.practice_request(
                "POST", f"{SESSION}/log", bearer=key, raw=b"678901", query={"offset": 5}
            ).status
            == 413
        )
    sizes = [practice.practice_request("GET", f"jobs/{job}").json()["log_size"] for job in jobs]
    assert sizes == [0, 5, 5]


def test_a_scripted_outage_affects_runner_programs_but_not_users(practice: Any) -> None:
    key = connected(practice)
    practice.core.faults.outage = True
    assert ask(practice, key, "job").status == 503
    assert practice.practice_request("GET", "jobs").status == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "BREW"]),
    path=st.sampled_from(
        ["session", "session/job", "session/log", "session/conclusion", "", "x/y"]
    ),
    face=st.sampled_from(["runner/", "", "jobs/", "jobs/1/", "deliveries/"]),
    body=JSON.map(msgspec.json.encode) | st.binary(max_size=20),
    bearer=st.text(max_size=12) | st.just("practice-secret"),
    query=st.dictionaries(
        st.sampled_from(["wait", "offset", "limit", "before"]), st.text(max_size=4)
    ),
)
def test_any_request_is_answered(
    practice: Any, method: str, path: str, face: str, body: bytes, bearer: str, query: Any
) -> None:
    query.pop("wait", None)
    answer = practice.practice_request(method, face + path, raw=body, bearer=bearer, query=query)
    assert 200 <= answer.status < 500
    assert answer.header("x-runyard-practice") == "github"
    assert practice.core.internal_errors == 0


def virtual(keys: Any, scenario: Any) -> None:
    async def main() -> None:
        core = GithubCore(
            clock=VirtualClock(),
            rng=random.Random(1),
            app=PracticeApp(app_id=1, public_key=keys.public_pem, webhook_secret="s"),
        )
        core.install("acme")
        core.add_repo("acme/app")
        async with asyncio.TaskGroup() as group:
            heart = group.create_task(core.run())
            await scenario(core)
            heart.cancel()

    run_virtual(main())


async def send(core: GithubCore, method: str, path: str, bearer: str, **more: Any) -> Response:
    headers = (("authorization", f"Bearer {bearer}"), ("content-type", "application/json"))
    return await core.handle(
        Request(method=method, path=f"/practice/{SESSION}{path}", headers=headers, **more)
    )


async def opened(core: GithubCore) -> tuple[int, str]:
    runner = core._state.register(
        "orgs/acme", name="a", labels=("mac",), group_id=1, work_folder="w"
    )
    answer = await send(core, "POST", "", runner.jit, body=b'{"instance": "start-0001"}')
    return runner.id, str(answer.json()["session"])


WAIT = (("wait", "60"),)


def test_a_poll_waits_for_a_change_up_to_its_limit(practice_keys: Any) -> None:
    async def scenario(core: GithubCore) -> None:
        loop = asyncio.get_running_loop()
        _, key = await opened(core)
        assert (await send(core, "GET", "/job", key, query=WAIT)).status == 204
        assert loop.time() == 25.0
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(send(core, "GET", "/job", key, query=WAIT))
            await asyncio.sleep(3)
            job_id = core.queue_job("acme/app", ("mac",))
        assert loop.time() == 28.0 and waiting.result().json()["id"] == job_id
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(send(core, "GET", "/cancelled", key, query=WAIT))
            await asyncio.sleep(3)
            core.cancel_job(job_id)
        assert loop.time() == 31.0 and waiting.result().status == 200

    virtual(practice_keys, scenario)


def test_a_waiting_poll_counts_as_contact_and_a_cancelled_one_does_not(practice_keys: Any) -> None:
    async def scenario(core: GithubCore) -> None:
        runner_id, key = await opened(core)
        for _ in range(4):
            await send(core, "GET", "/job", key, query=WAIT)
        assert core.runners()[runner_id].online
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(send(core, "GET", "/job", key, query=WAIT))
            await asyncio.sleep(5)
            waiting.cancel()  # what the server does when the client has gone
        await asyncio.sleep(29.5)
        assert core.runners()[runner_id].online
        await asyncio.sleep(1)
        assert not core.runners()[runner_id].online

    virtual(practice_keys, scenario)


def test_a_poll_ends_at_once_when_its_registration_is_deleted(practice_keys: Any) -> None:
    async def scenario(core: GithubCore) -> None:
        runner_id, key = await opened(core)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(send(core, "GET", "/job", key, query=WAIT))
            await asyncio.sleep(2)
            core._state.remove(core.runners()[runner_id], why="deleted")
        assert waiting.result().status == 410 and asyncio.get_running_loop().time() == 2.0

    virtual(practice_keys, scenario)
