"""What the sweeper checks in each state, and what follows from each answer."""

import pytest
from tests.dispatch.dispatchharness import SPACE, Guest, Harness, Onward, play

from runyard.components import server
from runyard.dispatch.guards import without
from runyard.dispatch.machine.events import PodGone
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.kinds import PODS, SERVICE_ACCOUNTS
from runyard.wire.reasons_dispatch import Why


async def sweep(harness: Harness, *guests: Guest) -> None:
    for guest in guests:
        harness.overdue(guest)
    await harness.server.recovery.sweeper.step()


async def executing(harness: Harness, guest: Guest) -> tuple[int, RunnerSession]:
    job = await harness.armed(guest)
    session = harness.github.connect(await harness.jit(guest))
    assert isinstance(session, RunnerSession)
    await harness.github.settle()
    assert harness.slot(guest)["executing_job"] == job
    return job, session


async def started(harness: Harness, number: int = 1) -> Guest:
    if not harness.server.shared.pools.known:
        await harness.pool()
    return await harness.pod(number)


def test_a_silent_idle_pod_is_verified(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        there, gone, over = [await started(harness, n) for n in (1, 2, 3)]
        for guest in (there, gone, over):
            await harness.poll(guest)
        await harness.delete_pod(gone)
        await harness.end_pod(over, "Failed")
        await sweep(harness, there, gone, over)
        states = [harness.slot(guest)["state"] for guest in (there, gone, over)]
        assert states == ["idle", "closed", "closed"]
        assert harness.slot(gone)["close_reason"] == Why.POD_NOT_FOUND
        assert harness.slot(there)["deadline"].year > 2025

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("state", ["offered", "armed"])
def test_an_overdue_claim_is_fenced_and_only_then_freed(
    database_url: str, app_keys: KeyPair, state: str
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job = await (harness.offered if state == "offered" else harness.armed)(guest)
        await sweep(harness, guest)
        slot = harness.slot(guest)
        assert (slot["state"], slot["fence"], slot["vcpus"]) == ("draining", "done", 4)
        assert not harness.github.runners()
        assert (harness.job(job)["state"], harness.job(job)["verified"]) == ("queued", False)
        # Its budget stays until the Pod is gone, its job does not wait for that.
        await harness.server.recovery.reader.step()
        assert harness.job(job)["verified"]
        await harness.server.recovery.sweeper.step()
        assert harness.kube.find("pods", SPACE, guest.name) is None
        assert harness.kube.find("serviceaccounts", SPACE, guest.name) is None
        assert harness.slot(guest)["state"] == "closed"

    play(scenario, database_url, app_keys)


def test_a_busy_runner_is_never_freed(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job = await harness.armed(guest)
        harness.deliver = False  # in_progress never arrives
        session = harness.github.connect(await harness.jit(guest))
        assert isinstance(session, RunnerSession)
        await harness.github.settle()
        await sweep(harness, guest)
        slot = harness.slot(guest)
        assert (slot["state"], slot["executing_job"], slot["intended_job"]) == (
            "executing",
            None,
            job,
        )
        await sweep(harness, guest)  # reads the intended job
        slot = harness.slot(guest)
        assert (slot["state"], slot["executing_job"], slot["intended_job"]) == (
            "executing",
            job,
            None,
        )
        assert harness.job(job)["state"] == "running" and not session.over

    play(scenario, database_url, app_keys)


def test_a_runner_that_got_another_job_requeues_its_own(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        other = harness.queue("acme/lib")
        await harness.github.settle()
        meant = await harness.armed(guest)
        # GitHub assigns the first job to the runner; no event arrives.
        harness.deliver = False
        session = harness.github.connect(await harness.jit(guest))
        assert isinstance(session, RunnerSession) and session.assignment is not None
        got = session.assignment.job_id
        intended = harness.slot(guest)["intended_job"]
        await harness.github.settle()
        await sweep(harness, guest)
        await sweep(harness, guest)
        assert harness.slot(guest)["state"] == "executing"
        if got != intended:
            assert harness.job(intended)["state"] == "queued"
        harness.deliver = True
        await harness.clock.sleep(60)
        await harness.server.intake.audit.step()
        assert harness.slot(guest)["executing_job"] == got
        assert {other, meant} >= {got}

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("completed", [True, False], ids=["over", "still running"])
def test_a_running_job_is_read_and_never_ended_by_age(
    database_url: str, app_keys: KeyPair, completed: bool
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job, session = await executing(harness, guest)
        harness.deliver = False  # completed never arrives
        if completed:
            session.finish("success")
        await harness.github.settle()
        await sweep(harness, guest)
        await sweep(harness)
        expected = ("draining", "done") if completed else ("executing", "running")
        assert (harness.slot(guest)["state"], harness.job(job)["state"]) == expected

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("readable", [True, False], ids=["run deleted", "permission lost"])
def test_a_job_that_github_does_not_know_is_over_only_if_its_repository_can_be_read(
    database_url: str, app_keys: KeyPair, readable: bool
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job, session = await executing(harness, guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            hidden = "/actions/jobs/" if readable else "/repos/"
            return json_response(404, {}) if hidden in request.path else await onward()

        harness.github_wire.tamper = tamper
        await sweep(harness, guest)
        expected = ("draining", "done", "gone") if readable else ("executing", "running", "")
        found = (
            harness.slot(guest)["state"],
            harness.job(job)["state"],
            harness.job(job)["conclusion"],
        )
        assert found == expected
        assert session.over is False

    play(scenario, database_url, app_keys)


def test_the_runner_of_a_dead_pod_is_fenced(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job = await harness.armed(guest)
        await harness.delete_pod(guest)
        await harness.store.apply_to_slot(
            guest.uid, PodGone(reason=Why.POD_NOT_FOUND.because()), name="gone"
        )
        slot = harness.slot(guest)
        assert (slot["state"], slot["fence"], slot["intended_job"]) == ("closed", "due", job)
        harness.github.faults.outage = True
        await sweep(harness, guest)
        assert harness.slot(guest)["fence"] == "due" and harness.job(job)["state"] == "bound"
        harness.github.faults.outage = False
        await sweep(harness, guest)
        assert harness.slot(guest)["fence"] == "done" and harness.job(job)["state"] == "queued"
        assert not harness.github.runners()

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("state", ["offered", "armed"])
@pytest.mark.parametrize("how", ["outage", "lost", "suspended", "absent but unreadable"])
def test_nothing_is_freed_while_github_is_unavailable(
    database_url: str, app_keys: KeyPair, state: str, how: str
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job = await (harness.offered if state == "offered" else harness.armed)(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if how == "lost":
                raise OutcomeUnknown("lost")
            return json_response(404, {}) if "/runners" in request.path else await onward()

        if how in ("lost", "absent but unreadable"):
            harness.github_wire.tamper = tamper
        harness.github.faults.outage = how == "outage"
        if how == "suspended":
            harness.github.suspend(harness.acme)
            harness.github.revoke_tokens()
        for _ in range(3):
            await sweep(harness, guest)
        slot = harness.slot(guest)
        assert (slot["state"], slot["intended_job"]) == (state, job)
        assert harness.job(job)["state"] == "bound"
        assert slot["deadline"].year > 2025, "it must not stay at the head of the sweep"

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("how", ["refused", "lost", "finalizer"])
def test_a_draining_pod_that_does_not_end_keeps_its_budget(
    database_url: str, app_keys: KeyPair, how: str
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        await harness.armed(guest)
        await sweep(harness, guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.method != "DELETE" or how == "finalizer":
                return await onward()
            if how == "lost":
                raise OutcomeUnknown("lost")
            return json_response(403, {"kind": "Status", "code": 403, "reason": "Forbidden"})

        if how == "finalizer":
            body = {"metadata": {"finalizers": ["example.org/keep"]}}
            await harness.admin.patch(PODS, guest.name, body, namespace=SPACE)
        harness.kube_wire.tamper = tamper
        await sweep(harness, guest)
        slot = harness.slot(guest)
        assert (slot["state"], slot["vcpus"]) == ("draining", 4)
        assert slot["deadline"].year > 2025, "it must not stay at the head of the sweep"
        claims = harness.rows("SELECT lifecycle_state FROM runner_claims")
        assert claims == [{"lifecycle_state": "running"}]

    play(scenario, database_url, app_keys)


def test_the_service_account_of_a_gone_pod_is_deleted(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        await harness.armed(guest)
        await sweep(harness, guest)
        await harness.delete_pod(guest)
        await sweep(harness, guest)
        assert harness.slot(guest)["state"] == "closed"
        assert harness.kube.find("serviceaccounts", SPACE, guest.name) is None

    play(scenario, database_url, app_keys)


def test_a_successor_of_the_same_name_keeps_its_pod_and_account(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        await harness.armed(guest)
        await sweep(harness, guest)
        await harness.delete_pod(guest)
        await harness.pod_only(guest.name)
        await sweep(harness, guest)
        assert harness.slot(guest)["state"] == "closed"
        assert harness.kube.find("pods", SPACE, guest.name) is not None
        assert harness.kube.find("serviceaccounts", SPACE, guest.name) is not None

    play(scenario, database_url, app_keys)


def test_after_an_outage_no_slot_is_swept_at_once(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        sweeper = harness.server.recovery.sweeper
        guest = await started(harness)
        await harness.armed(guest)
        await sweeper.tick()
        await sweeper.step()
        await harness.clock.sleep(3600)  # no sweeps: an outage of the service
        await sweeper.step()  # even if the sweep is quicker than the tick
        await sweeper.tick()
        await sweeper.step()
        assert harness.slot(guest)["state"] == "armed"
        for _ in range(23):
            await harness.clock.sleep(5)
            await sweeper.tick()
            await sweeper.step()
        assert harness.slot(guest)["state"] == "armed"
        await harness.clock.sleep(10)
        await sweeper.tick()
        await sweeper.step()
        assert harness.slot(guest)["state"] == "draining"

    play(scenario, database_url, app_keys)


def test_without_the_outage_guard_slots_are_swept_at_once(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        await harness.armed(guest)
        sweeper = server.wire(harness.deps(guards=without("outage_grace"))).recovery.sweeper
        await sweeper.tick()
        await harness.clock.sleep(3600)  # no sweeps: an outage of the service
        await sweeper.tick()
        await sweeper.step()
        assert harness.slot(guest)["state"] == "draining"

    play(scenario, database_url, app_keys)


def test_a_registration_without_a_pod_is_deleted_at_once_after_an_outage(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        sweeper = harness.server.recovery.sweeper
        guest = await started(harness)
        await harness.armed(guest)
        await sweeper.tick()
        await harness.clock.sleep(3600)  # an outage of the service
        await sweeper.tick()
        await harness.end_pod(guest)
        assert await harness.server.shared.closer.close_if_gone(
            pod_name=guest.name, pod_uid=guest.uid
        )
        assert harness.slot(guest)["fence"] == "due" and harness.github.runners()
        await sweeper.step()
        assert harness.slot(guest)["fence"] == "done" and not harness.github.runners()

    play(scenario, database_url, app_keys)


def test_a_slow_sweep_is_no_outage(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        sweeper = harness.server.recovery.sweeper
        await sweeper.tick()
        (before,) = harness.rows("SELECT served_since FROM service")
        for _ in range(20):  # one step of a minute, while ticks continue
            await harness.clock.sleep(5)
            await sweeper.tick()
        assert harness.rows("SELECT served_since FROM service") == [before]
        await harness.clock.sleep(60)
        await sweeper.tick()
        assert harness.rows("SELECT served_since FROM service") != [before]

    play(scenario, database_url, app_keys)


def test_slots_in_their_outage_grace_do_not_use_up_the_limit(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        first, second = await started(harness, 1), await started(harness, 2)
        await harness.armed(first)
        await harness.offered(second)
        for guest in (first, second):
            harness.overdue(guest)
        harness.execute(
            "UPDATE service SET served_since = '2025-12-31T23:59:50Z', last_tick = '2100-01-01Z'"
        )
        await (
            harness.server.recovery.sweeper.step()
        )  # one at a time; the armed one is older but has to wait
        assert [harness.slot(g)["state"] for g in (first, second)] == ["armed", "draining"]

    play(scenario, database_url, app_keys, sweep_limit=1)


def test_a_tick_sweeps_a_limited_number(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        guests = [await started(harness, n) for n in range(1, 6)]
        for guest in guests:
            await harness.armed(guest)
        await sweep(harness, *guests)
        assert [harness.slot(g)["state"] for g in guests].count("draining") == 2
        await harness.server.recovery.sweeper.step()
        assert [harness.slot(g)["state"] for g in guests].count("draining") >= 2

    play(scenario, database_url, app_keys, sweep_limit=2)


def test_a_stop_report_is_a_hint_and_needs_the_operator(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        await harness.poll(guest)
        token = await harness.controller_token()
        other = await harness.controller_token("somebody-else")
        assert (await harness.report_stopped(guest.name, other)).status == 401
        assert (await harness.report_stopped(guest.name, "")).status == 401
        assert (await harness.report_stopped(guest.name, guest.token)).status == 401
        assert (await harness.report_stopped("nobody", token)).status == 204
        assert (await harness.report_stopped(guest.name, token)).status == 204
        assert harness.slot(guest)["state"] == "idle", "a report alone proves nothing"
        await harness.admin.delete(SERVICE_ACCOUNTS, guest.name, namespace=SPACE)
        await harness.delete_pod(guest)
        harness.kube_wire.tamper = _no_pods
        assert (await harness.report_stopped(guest.name, token)).status == 503
        harness.kube_wire.tamper = None
        assert (await harness.report_stopped(guest.name, token)).status == 204
        assert harness.slot(guest)["state"] == "closed"
        assert (await harness.report_stopped(guest.name, token)).status == 204

    play(scenario, database_url, app_keys)


async def _no_pods(request: Request, onward: Onward) -> Response | Stream:
    return json_response(500, {}) if "/pods/" in request.path else await onward()
