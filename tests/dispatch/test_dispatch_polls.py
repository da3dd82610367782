"""The answer to a poll in every situation, and the order of the checks."""

import asyncio
import io

import pytest
from tests.dispatch.dispatchworld import SPACE, Between, Guest, Onward, World, play

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


async def roll(world: World) -> None:
    await world.admin.patch(RUNNER_POOLS, "mac", STALE, namespace=SPACE)
    await world.server.shared.pools.refresh()


async def token_for(world: World, guest: Guest, **changes: object) -> str:
    values = {
        "namespace": SPACE,
        "audience": names.DISPATCH_AUDIENCE,
        "seconds": 3600,
        "pod_name": guest.name,
        "pod_uid": guest.uid,
    }
    return await world.admin.create_token(guest.name, **(values | changes))  # type: ignore[arg-type]  # many kinds of fields


def test_an_unauthenticated_caller_gets_401_with_a_reason(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        other = await token_for(world, guest, audience="somebody-else")
        unbound = await token_for(world, guest, pod_name="", pod_uid="")
        foreign = await world.admin.create_token(
            "default"
            if world.kube.find("serviceaccounts", "default", "default")
            else await made(world),
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
            answer = await world.ask("POST", DISPATCH, b"{}", (("authorization", header),))
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
        assert world.rows("SELECT * FROM slots") == []

    async def made(world: World) -> str:
        body = {"metadata": {"name": "somebody"}}
        await world.admin.create(SERVICE_ACCOUNTS, body, namespace="default")
        return "somebody"

    play(scenario, database_url, app_keys)


def test_a_service_account_without_a_pool_or_gone_gets_401(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        body = {"metadata": {"labels": {names.RUNNER_POOL: None}}}
        await world.admin.patch(SERVICE_ACCOUNTS, guest.name, body, namespace=SPACE)
        answer = await world.poll(guest)
        assert (answer.status, answer.json()["code"]) == (401, Denied.ACCOUNT_WITHOUT_POOL)

        async def vanish(request: Request, onward: Onward) -> Response | Stream:
            if request.method == "GET" and "serviceaccounts" in request.path:
                return json_response(404, {"kind": "Status", "code": 404, "reason": "NotFound"})
            return await onward()

        world.kube_wire.tamper = vanish
        answer = await world.poll(guest)
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
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod(**labels)
        if rolled:
            await roll(world)
        answer = await world.poll(guest)
        assert answer.status == status
        if status == 410:
            person = names.OPERATOR_DRAIN in labels
            reason = "operator drain" if person else "image stale"
            assert answer.json() == {"error": "drain", "reason": reason}
            assert world.slot(guest) == {}, "a Pod that is drained opens no slot"

    play(scenario, database_url, app_keys)


def test_a_stale_pod_that_is_not_eligible_still_gets_jobs(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await roll(world)
        await world.armed(guest)
        assert (await world.poll(guest)).status == 200

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("how", ["500", "lost", "404", "another uid"])
def test_an_unreadable_pod_is_not_stale(database_url: str, app_keys: KeyPair, how: str) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod(**{names.OPERATOR_DRAIN: "true"})

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

        world.kube_wire.tamper = tamper
        assert (await world.poll(guest)).status == 204

    play(scenario, database_url, app_keys)


def test_a_jit_is_delivered_again_to_its_own_pod_only(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest, other = await world.pod(1), await world.pod(2)
        job = await world.armed(guest)
        first, second = await world.poll(guest), await world.poll(guest)
        assert first.status == second.status == 200 and first.body == second.body
        assert first.json()["workflow_job_id"] == job
        assert (await world.poll(other)).status == 204
        # The sealed value cannot be opened in another row.
        await world.armed(other)
        world.execute(
            "UPDATE slots SET jit = (SELECT jit FROM slots WHERE pod_uid = %s) WHERE pod_uid = %s",
            guest.uid,
            other.uid,
        )
        assert (await world.poll(other)).status == 500

    play(scenario, database_url, app_keys)


def test_a_pod_that_has_had_its_job_is_drained(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        await world.armed(guest)
        session = world.github.connect(await world.jit(guest))
        await world.github.settle()
        assert world.slot(guest)["state"] == "executing"
        committed = {"error": "drain", "reason": "pod already committed"}
        answer = await world.poll(guest)
        assert (answer.status, answer.json()) == (410, committed)
        session.finish("success")  # type: ignore[union-attr]  # it connected
        await world.github.settle()
        assert world.slot(guest)["state"] == "draining"
        answer = await world.poll(guest, wait=20)
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
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        began = world.clock.monotonic()
        headers = (("authorization", f"Bearer {guest.token}"), ("prefer", prefer))
        answer = await world.ask("POST", DISPATCH, b"{}", headers)
        assert answer.status == 204 and answer.body == b""
        assert world.clock.monotonic() - began == pytest.approx(waited)

    play(scenario, database_url, app_keys)


def test_a_database_that_is_down_is_500_and_kubernetes_503(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()

        async def down(request: Request, onward: Onward) -> Response | Stream:
            raise OutcomeUnknown("no API")

        world.kube_wire.tamper = down
        answer = await world.poll(guest)
        assert (answer.status, answer.json()["code"]) == (503, ProblemCode.KUBERNETES_UNAVAILABLE)
        world.kube_wire.tamper = None
        world.database.down = True
        answer = await world.poll(guest)
        assert (answer.status, answer.json()["code"]) == (500, ProblemCode.DISPATCH_DATABASE)
        world.database.down = False
        assert (await world.poll(guest)).status == 204
        # An accepted token is cached: a short outage of the API fails no poll.
        world.kube_wire.tamper = down
        assert (await world.poll(guest)).status == 204

    play(scenario, database_url, app_keys)


def test_a_poll_that_waits_is_answered_as_soon_as_its_runner_is_armed(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        async with world.waiting(guest) as (poll,):
            await world.queued()
            await world.match()
            again = asyncio.create_task(world.poll(guest, wait=9))  # polls again during the mint
            await world.clock.sleep(0.01)
            before = world.clock.monotonic()
            await world.mint()
            answer, second = await poll, await again
            assert world.clock.monotonic() - before < 1.5
        assert answer.status == second.status == 200 and answer.body == second.body
        assert len(world.github.runners()) == 1

    play(scenario, database_url, app_keys)


def test_nothing_is_claimed_for_a_closed_connection(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        job = await world.queued()
        async with world.waiting(guest):
            pass  # connection closed
        await world.match()
        assert (world.slot(guest)["state"], world.job(job)["state"]) == ("idle", "queued")

    play(scenario, database_url, app_keys)


def test_nothing_is_claimed_for_a_connection_that_closes_during_the_match(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        polls: list[asyncio.Task[Response]] = []

        async def hang_up(name: str) -> None:
            if name == "match":
                return
            for poll in polls if name == "claim" else ():
                poll.cancel()
            await world.clock.sleep(0.01)

        slow = Between(world.database, hang_up)
        world.server = server.wire(world.deps(database=slow))
        world.handle = world.server.intake.api.handle
        await world.pool()
        guests = [await world.pod(number) for number in (1, 2, 3)]
        for _ in guests:
            await world.queued()
        async with world.waiting(*guests) as found:
            await world.clock.sleep(0.1)
            polls += found
            await world.match()  # all connections close just before the claims
        states = [world.slot(guest)["state"] for guest in guests]
        assert states == ["idle", "idle", "idle"]

    play(scenario, database_url, app_keys)


def test_a_token_of_another_pod_is_not_accepted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod()
        body = {
            "metadata": {"name": "other"},
            "spec": {
                "serviceAccountName": guest.name,
                "containers": [{"name": "runner", "image": "vm:1"}],
            },
        }
        made = await world.admin.create(PODS, body, namespace=SPACE)
        bound = {"pod_name": "other", "pod_uid": made["metadata"]["uid"]}
        answer = await world.poll(Guest("other", "", await token_for(world, guest, **bound)))
        assert (answer.status, answer.json()["code"]) == (401, Denied.TOKEN_UNBOUND)

    play(scenario, database_url, app_keys)


def test_a_late_poll_of_an_old_pod_does_not_close_its_successor(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        first = await world.pod()
        assert (await world.poll(first)).status == 204
        await world.delete_pod(first)
        second = await world.pod_only(first.name)
        await world.armed(second)
        assert world.slot(first)["state"] == "closed"
        assert (await world.poll(first)).status == 410  # its token is still cached
        assert world.slot(second)["state"] == "armed"

    play(scenario, database_url, app_keys)


def test_no_jit_and_no_token_reaches_the_log(database_url: str, app_keys: KeyPair) -> None:
    lines = io.StringIO()
    log.configure(level="debug", stream=lines)
    try:

        async def scenario(world: World) -> str:
            await world.pool()
            guest = await world.pod()
            async with world.running():
                world.queue()
                answer = await world.poll(guest, wait=20)
                await world.clock.sleep(30)
                await world.poll(guest)
                return str(answer.json()["encoded_jit_config"]) + " " + guest.token

        jit, token = play(scenario, database_url, app_keys).split()
    finally:
        log.configure(level="critical")
    assert jit[:40] not in lines.getvalue() and token[:40] not in lines.getvalue()
