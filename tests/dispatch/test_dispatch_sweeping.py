"""What the sweeper checks in each state, and what follows from each answer."""

import pytest
from tests.dispatch.dispatchworld import SPACE, Guest, Onward, World, play

from runyard.components import server
from runyard.dispatch.guards import without
from runyard.dispatch.machine.events import PodGone
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.wire.reasons_dispatch import Why


async def sweep(world: World, *guests: Guest) -> None:
    for guest in guests:
        world.overdue(guest)
    await world.server.recovery.sweeper.step()


async def executing(world: World, guest: Guest) -> tuple[int, RunnerSession]:
    job = await world.armed(guest)
    session = world.github.connect(await world.jit(guest))
    assert isinstance(session, RunnerSession)
    await world.github.settle()
    assert world.slot(guest)["executing_job"] == job
    return job, session


async def started(world: World, number: int = 1) -> Guest:
    if not world.server.shared.pools.known:
        await world.pool()
    return await world.pod(number)


def test_a_silent_idle_pod_is_verified(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        there, gone, over = [await started(world, n) for n in (1, 2, 3)]
        for guest in (there, gone, over):
            await world.poll(guest)
        await world.delete_pod(gone)
        await world.end_pod(over, "Failed")
        await sweep(world, there, gone, over)
        states = [world.slot(guest)["state"] for guest in (there, gone, over)]
        assert states == ["idle", "closed", "closed"]
        assert world.slot(gone)["close_reason"] == Why.POD_NOT_FOUND
        assert world.slot(there)["deadline"].year > 2025

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("state", ["offered", "armed"])
def test_an_overdue_claim_is_fenced_and_only_then_freed(
    database_url: str, app_keys: KeyPair, state: str
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job = await (world.offered if state == "offered" else world.armed)(guest)
        await sweep(world, guest)
        slot = world.slot(guest)
        assert (slot["state"], slot["fence"], slot["vcpus"]) == ("draining", "done", 4)
        assert not world.github.runners()
        assert (world.job(job)["state"], world.job(job)["verified"]) == ("queued", False)
        # Its budget stays until the Pod is gone, its job does not wait for that.
        await world.server.recovery.reader.step()
        assert world.job(job)["verified"]
        await world.server.recovery.sweeper.step()
        assert world.kube.find("pods", SPACE, guest.name) is None
        assert world.kube.find("serviceaccounts", SPACE, guest.name) is None
        assert world.slot(guest)["state"] == "closed"

    play(scenario, database_url, app_keys)


def test_a_busy_runner_is_never_freed(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job = await world.armed(guest)
        world.deliver = False  # in_progress never arrives
        session = world.github.connect(await world.jit(guest))
        assert isinstance(session, RunnerSession)
        await world.github.settle()
        await sweep(world, guest)
        slot = world.slot(guest)
        assert (slot["state"], slot["executing_job"], slot["intended_job"]) == (
            "executing",
            None,
            job,
        )
        await sweep(world, guest)  # reads the intended job
        slot = world.slot(guest)
        assert (slot["state"], slot["executing_job"], slot["intended_job"]) == (
            "executing",
            job,
            None,
        )
        assert world.job(job)["state"] == "running" and not session.over

    play(scenario, database_url, app_keys)


def test_a_runner_that_got_another_job_requeues_its_own(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        other = world.queue("acme/lib")
        await world.github.settle()
        meant = await world.armed(guest)
        # GitHub assigns the first job to the runner; no event arrives.
        world.deliver = False
        session = world.github.connect(await world.jit(guest))
        assert isinstance(session, RunnerSession) and session.assignment is not None
        got = session.assignment.job_id
        intended = world.slot(guest)["intended_job"]
        await world.github.settle()
        await sweep(world, guest)
        await sweep(world, guest)
        assert world.slot(guest)["state"] == "executing"
        if got != intended:
            assert world.job(intended)["state"] == "queued"
        world.deliver = True
        await world.clock.sleep(60)
        await world.server.intake.audit.step()
        assert world.slot(guest)["executing_job"] == got
        assert {other, meant} >= {got}

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("completed", [True, False], ids=["over", "still running"])
def test_a_running_job_is_read_and_never_ended_by_age(
    database_url: str, app_keys: KeyPair, completed: bool
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job, session = await executing(world, guest)
        world.deliver = False  # completed never arrives
        if completed:
            session.finish("success")
        await world.github.settle()
        await sweep(world, guest)
        await sweep(world)
        expected = ("draining", "done") if completed else ("executing", "running")
        assert (world.slot(guest)["state"], world.job(job)["state"]) == expected

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("readable", [True, False], ids=["run deleted", "permission lost"])
def test_a_job_that_github_does_not_know_is_over_only_if_its_repository_can_be_read(
    database_url: str, app_keys: KeyPair, readable: bool
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job, session = await executing(world, guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            hidden = "/actions/jobs/" if readable else "/repos/"
            return json_response(404, {}) if hidden in request.path else await onward()

        world.github_wire.tamper = tamper
        await sweep(world, guest)
        expected = ("draining", "done", "gone") if readable else ("executing", "running", "")
        found = world.slot(guest)["state"], world.job(job)["state"], world.job(job)["conclusion"]
        assert found == expected
        assert session.over is False

    play(scenario, database_url, app_keys)


def test_the_runner_of_a_dead_pod_is_fenced(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job = await world.armed(guest)
        await world.delete_pod(guest)
        await world.store.apply_to_slot(
            guest.uid, PodGone(reason=Why.POD_NOT_FOUND.because()), name="gone"
        )
        slot = world.slot(guest)
        assert (slot["state"], slot["fence"], slot["intended_job"]) == ("closed", "due", job)
        world.github.faults.outage = True
        await sweep(world, guest)
        assert world.slot(guest)["fence"] == "due" and world.job(job)["state"] == "bound"
        world.github.faults.outage = False
        await sweep(world, guest)
        assert world.slot(guest)["fence"] == "done" and world.job(job)["state"] == "queued"
        assert not world.github.runners()

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("state", ["offered", "armed"])
@pytest.mark.parametrize("how", ["outage", "lost", "suspended", "absent but unreadable"])
def test_nothing_is_freed_while_github_is_unavailable(
    database_url: str, app_keys: KeyPair, state: str, how: str
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job = await (world.offered if state == "offered" else world.armed)(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if how == "lost":
                raise OutcomeUnknown("lost")
            return json_response(404, {}) if "/runners" in request.path else await onward()

        if how in ("lost", "absent but unreadable"):
            world.github_wire.tamper = tamper
        world.github.faults.outage = how == "outage"
        if how == "suspended":
            world.github.suspend(world.acme)
            world.github.revoke_tokens()
        for _ in range(3):
            await sweep(world, guest)
        slot = world.slot(guest)
        assert (slot["state"], slot["intended_job"]) == (state, job)
        assert world.job(job)["state"] == "bound"
        assert slot["deadline"].year > 2025, "it must not stay at the head of the sweep"

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("how", ["refused", "lost", "finalizer"])
def test_a_draining_pod_that_does_not_end_keeps_its_budget(
    database_url: str, app_keys: KeyPair, how: str
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        await world.armed(guest)
        await sweep(world, guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method != "DELETE" or how == "finalizer":
                return await onward()
            if how == "lost":
                raise OutcomeUnknown("lost")
            return json_response(403, {"kind": "Status", "code": 403, "reason": "Forbidden"})

        if how == "finalizer":
            body = {"metadata": {"finalizers": ["example.org/keep"]}}
            await world.admin.patch(PODS, guest.name, body, namespace=SPACE)
        world.kube_wire.tamper = tamper
        await sweep(world, guest)
        slot = world.slot(guest)
        assert (slot["state"], slot["vcpus"]) == ("draining", 4)
        assert slot["deadline"].year > 2025, "it must not stay at the head of the sweep"
        claims = world.rows("SELECT lifecycle_state FROM runner_claims")
        assert claims == [{"lifecycle_state": "running"}]

    play(scenario, database_url, app_keys)


def test_the_service_account_of_a_gone_pod_is_deleted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        await world.armed(guest)
        await sweep(world, guest)
        await world.delete_pod(guest)
        await sweep(world, guest)
        assert world.slot(guest)["state"] == "closed"
        assert world.kube.find("serviceaccounts", SPACE, guest.name) is None

    play(scenario, database_url, app_keys)


def test_a_successor_of_the_same_name_keeps_its_pod_and_account(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        await world.armed(guest)
        await sweep(world, guest)
        await world.delete_pod(guest)
        await world.pod_only(guest.name)
        await sweep(world, guest)
        assert world.slot(guest)["state"] == "closed"
        assert world.kube.find("pods", SPACE, guest.name) is not None
        assert world.kube.find("serviceaccounts", SPACE, guest.name) is not None

    play(scenario, database_url, app_keys)


def test_after_an_outage_no_slot_is_swept_at_once(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        sweeper = world.server.recovery.sweeper
        guest = await started(world)
        await world.armed(guest)
        await sweeper.tick()
        await sweeper.step()
        await world.clock.sleep(3600)  # no sweeps: an outage of the service
        await sweeper.step()  # even if the sweep is quicker than the tick
        await sweeper.tick()
        await sweeper.step()
        assert world.slot(guest)["state"] == "armed"
        for _ in range(23):
            await world.clock.sleep(5)
            await sweeper.tick()
            await sweeper.step()
        assert world.slot(guest)["state"] == "armed"
        await world.clock.sleep(10)
        await sweeper.tick()
        await sweeper.step()
        assert world.slot(guest)["state"] == "draining"

    play(scenario, database_url, app_keys)


def test_without_the_outage_guard_slots_are_swept_at_once(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        await world.armed(guest)
        sweeper = server.wire(world.deps(guards=without("outage_grace"))).recovery.sweeper
        await sweeper.tick()
        await world.clock.sleep(3600)  # no sweeps: an outage of the service
        await sweeper.tick()
        await sweeper.step()
        assert world.slot(guest)["state"] == "draining"

    play(scenario, database_url, app_keys)


def test_a_registration_without_a_pod_is_deleted_at_once_after_an_outage(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        sweeper = world.server.recovery.sweeper
        guest = await started(world)
        await world.armed(guest)
        await sweeper.tick()
        await world.clock.sleep(3600)  # an outage of the service
        await sweeper.tick()
        await world.end_pod(guest)
        assert await world.server.shared.closer.close_if_gone(
            pod_name=guest.name, pod_uid=guest.uid
        )
        assert world.slot(guest)["fence"] == "due" and world.github.runners()
        await sweeper.step()
        assert world.slot(guest)["fence"] == "done" and not world.github.runners()

    play(scenario, database_url, app_keys)


def test_a_slow_sweep_is_no_outage(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        sweeper = world.server.recovery.sweeper
        await sweeper.tick()
        (before,) = world.rows("SELECT served_since FROM service")
        for _ in range(20):  # one step of a minute, while ticks continue
            await world.clock.sleep(5)
            await sweeper.tick()
        assert world.rows("SELECT served_since FROM service") == [before]
        await world.clock.sleep(60)
        await sweeper.tick()
        assert world.rows("SELECT served_since FROM service") != [before]

    play(scenario, database_url, app_keys)


def test_slots_in_their_outage_grace_do_not_use_up_the_limit(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        first, second = await started(world, 1), await started(world, 2)
        await world.armed(first)
        await world.offered(second)
        for guest in (first, second):
            world.overdue(guest)
        world.execute(
            "UPDATE service SET served_since = '2025-12-31T23:59:50Z', last_tick = '2100-01-01Z'"
        )
        await (
            world.server.recovery.sweeper.step()
        )  # one at a time; the armed one is older but has to wait
        assert [world.slot(g)["state"] for g in (first, second)] == ["armed", "draining"]

    play(scenario, database_url, app_keys, sweep_limit=1)


def test_a_tick_sweeps_a_limited_number(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        guests = [await started(world, n) for n in range(1, 6)]
        for guest in guests:
            await world.armed(guest)
        await sweep(world, *guests)
        assert [world.slot(g)["state"] for g in guests].count("draining") == 2
        await world.server.recovery.sweeper.step()
        assert [world.slot(g)["state"] for g in guests].count("draining") >= 2

    play(scenario, database_url, app_keys, sweep_limit=2)


def test_a_stop_report_is_a_hint_and_needs_the_operator(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        await world.poll(guest)
        token = await world.controller_token()
        other = await world.controller_token("somebody-else")
        assert (await world.report_stopped(guest.name, other)).status == 401
        assert (await world.report_stopped(guest.name, "")).status == 401
        assert (await world.report_stopped(guest.name, guest.token)).status == 401
        assert (await world.report_stopped("nobody", token)).status == 204
        assert (await world.report_stopped(guest.name, token)).status == 204
        assert world.slot(guest)["state"] == "idle", "a report alone proves nothing"
        await world.admin.delete(SERVICE_ACCOUNTS, guest.name, namespace=SPACE)
        await world.delete_pod(guest)
        world.kube_wire.tamper = _no_pods
        assert (await world.report_stopped(guest.name, token)).status == 503
        world.kube_wire.tamper = None
        assert (await world.report_stopped(guest.name, token)).status == 204
        assert world.slot(guest)["state"] == "closed"
        assert (await world.report_stopped(guest.name, token)).status == 204

    play(scenario, database_url, app_keys)


async def _no_pods(request: Request, onward: Onward) -> Response | Stream:
    return json_response(500, {}) if "/pods/" in request.path else await onward()
