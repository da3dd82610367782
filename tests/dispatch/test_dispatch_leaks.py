"""Leaked Pods, slots and registrations are recovered, and nothing else is deleted."""

import contextlib

import pytest
from tests.dispatch.dispatchharness import SPACE, Guest, Harness, Onward, play

from runyard.components import server
from runyard.dispatch.machine.values import Fence, SlotState
from runyard.dispatch.plans.ghosts import Registration, unclaimed
from runyard.dispatch.plans.stamped import PodView, SlotView, find_leaks
from runyard.embedded.github.identity import KeyPair
from runyard.embedded.github.session import RunnerSession
from runyard.github.errors import GitHubError
from runyard.http.errors import OutcomeUnknown
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.kube.errors import KubeError
from runyard.kube.kinds import PODS
from runyard.telemetry import conditions
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT
from runyard.telemetry.health import Health
from runyard.wire import names

STAMP = {names.POOL_OWNER: "acme"}


async def stamped(harness: Harness, number: int) -> Guest:
    return await harness.pod(number, **STAMP)


async def known(harness: Harness) -> None:
    """Insert the tenant, as its first webhook does."""
    await harness.pool()
    await harness.queued("acme/app", ("ubuntu-latest",))


async def recover(harness: Harness) -> None:
    await harness.server.recovery.pods.step()
    await harness.server.recovery.stamped.step()
    harness.served_long()
    await harness.server.recovery.sweeper.step()


def there(harness: Harness, *guests: Guest) -> list[bool]:
    return [harness.kube.find("pods", SPACE, guest.name) is not None for guest in guests]


def test_a_stamped_pod_without_a_claim_is_reaped_with_its_account(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await known(harness)
        never_polled, polled = await stamped(harness, 1), await stamped(harness, 2)
        await harness.poll(polled)
        await harness.clock.sleep(301)
        await harness.poll(polled)  # it polls for ever, as such Pods do
        await recover(harness)
        assert there(harness, never_polled, polled) == [False, False]
        assert harness.kube.find("serviceaccounts", SPACE, polled.name) is None
        assert harness.slot(polled)["state"] == harness.slot(never_polled)["state"] == "closed"
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod") == 2

    play(scenario, database_url, app_keys)


def test_only_leaked_pods_of_a_mixed_batch_are_deleted(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await known(harness)
        claimed, leaked, warm = (
            await harness.pod(1),
            await stamped(harness, 2),
            await harness.pod(3),
        )
        unknown = await harness.pod(5, **{names.POOL_OWNER: "nobody-we-know"})
        await harness.armed(claimed)
        await harness.poll(warm)
        await harness.clock.sleep(301)
        harness.execute("UPDATE slots SET deadline = '2100-01-01Z'")
        young = await stamped(harness, 4)
        await harness.poll(warm)
        await recover(harness)
        pods = (claimed, leaked, warm, young, unknown)
        assert there(harness, *pods) == [True, False, True, True, False]

    play(scenario, database_url, app_keys)


def test_a_polling_pod_with_an_unknown_owners_stamp_is_retired(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await known(harness)
        stranger = {names.POOL_OWNER: "nobody-we-know"}
        asks, silent = await harness.pod(1, **stranger), await harness.pod(2, **stranger)
        for guest in (asks, silent):
            await harness.poll(guest)
        await harness.clock.sleep(301)
        await harness.poll(asks)
        harness.github.faults.outage = True
        await recover(harness)
        assert there(harness, asks, silent) == [False, True], "the silent one may be at work"
        harness.github.faults.outage = False

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("how", ["500", "lost", "nonsense"])
def test_a_failed_list_retires_no_pod(database_url: str, app_keys: KeyPair, how: str) -> None:
    async def scenario(harness: Harness) -> None:
        await known(harness)
        guest = await stamped(harness, 1)
        await harness.clock.sleep(400)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if not request.path.endswith("/pods"):
                return await onward()
            if how == "lost":
                raise OutcomeUnknown("lost")
            return json_response(200 if how == "nonsense" else 500, {"items": [{"metadata": 3}]})

        harness.kube_wire.tamper = tamper
        for reconciler in (harness.server.recovery.pods, harness.server.recovery.stamped):
            with pytest.raises((KubeError, OutcomeUnknown)):
                await reconciler.step()
        assert there(harness, guest) == [True] and harness.slot(guest) == {}

    play(scenario, database_url, app_keys)


def test_an_empty_list_retires_no_pod(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await known(harness)
        guest = await harness.pod(1)
        await harness.poll(guest)
        await harness.delete_pod(guest)
        asked = len(harness.kube_wire.requests)
        await harness.server.recovery.pods.step()
        assert len(harness.kube_wire.requests) == asked + 1
        assert harness.slot(guest)["state"] == "idle"

    play(scenario, database_url, app_keys)


def test_a_busy_runner_is_not_deleted_although_its_rows_are_lost(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guest = await harness.pod(1)
        await harness.armed(guest)
        session = harness.github.connect(await harness.jit(guest))
        assert isinstance(session, RunnerSession)
        await harness.github.settle()
        harness.execute("DELETE FROM slots")  # the database was restored from yesterday
        await harness.clock.sleep(400)
        for _ in range(3):
            await recover(harness)
        assert there(harness, guest) == [True] and not session.over
        harness.github.faults.outage = True
        await recover(harness)
        assert there(harness, guest) == [True], "GitHub could not be asked"
        harness.github.faults.outage = False
        session.finish("success")
        await recover(harness)
        assert there(harness, guest) == [False]

    play(scenario, database_url, app_keys)


def test_the_runner_of_a_leaked_pod_is_fenced_before_the_pod_is_deleted(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        for guest, repo in (
            (await harness.pod(1), "acme/app"),
            (await harness.pod(2), "mona/dots"),
        ):
            await harness.armed(guest, repo)
        harness.execute("DELETE FROM slots")
        harness.execute("UPDATE jobs SET state = 'queued', verified = false")
        await harness.clock.sleep(400)
        assert len(harness.github.runners()) == 2
        await recover(harness)
        assert not harness.github.runners() and not harness.kube.objects("pods")

    play(scenario, database_url, app_keys)


async def refused(harness: Harness) -> None:
    """A mint that GitHub certainly refuses: its stamp is cleared, and the Pod is idle again."""

    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        minting = request.path.endswith("/generate-jitconfig")
        return json_response(422, {"message": "no"}) if minting else await onward()

    harness.github_wire.tamper = tamper
    await harness.mint()
    harness.github_wire.tamper = None
    harness.execute("DELETE FROM exclusions")


@pytest.mark.parametrize("offered_again", [False, True])
def test_a_pod_whose_stamp_was_cleared_after_the_list_is_kept(
    database_url: str, app_keys: KeyPair, offered_again: bool
) -> None:
    async def scenario(harness: Harness) -> None:
        await known(harness)
        guest = await harness.pod(1)
        await harness.clock.sleep(301)
        await harness.offered(guest)
        await harness.label(guest, **STAMP)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.path.endswith("/pods"):
                answer = await onward()  # with the stamp
                await refused(harness)
                assert harness.slot(guest)["state"] == "idle" and harness.stamp(guest) == ""
                return answer
            if offered_again and request.method == "GET" and guest.name in request.path:
                harness.kube_wire.tamper = None
                await harness.armed(guest)
            return await onward()

        harness.kube_wire.tamper = tamper
        await harness.server.recovery.stamped.step()
        harness.kube_wire.tamper = None
        harness.served_long()
        await harness.server.recovery.sweeper.step()
        assert there(harness, guest) == [True]
        assert harness.slot(guest)["state"] == ("armed" if offered_again else "idle")
        assert len(harness.github.runners()) == offered_again

    play(scenario, database_url, app_keys)


def test_leaks_that_cannot_be_retired_are_reported_and_do_not_block_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        health = Health(harness.clock, conditions.ALL)
        wired = server.wire(harness.deps(health=health))
        await known(harness)
        harness.github.suspend(harness.mona)
        strange = [await harness.pod(n, **{names.POOL_OWNER: "nobody-we-know"}) for n in (1, 2)]
        await harness.clock.sleep(1)
        leaked = await stamped(harness, 3)
        await harness.clock.sleep(301)
        for _ in range(3):
            await wired.recovery.stamped.step()
        assert harness.slot(leaked)["state"] == "draining"
        (reported,) = health.report()
        assert reported.code == "unknown-stamp-owner" and reported.message.startswith("2: ")
        assert all(guest.name in reported.message for guest in strange)
        for guest in strange:
            await harness.delete_pod(guest)
        await wired.recovery.stamped.step()
        assert health.report() == ()

    play(scenario, database_url, app_keys, recover_limit=1)


def test_slots_with_unlisted_pods_do_not_block_the_proof_of_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guests = [await harness.pod(number) for number in range(1, 4)]
        unlisted, gone, _ = sorted(guests, key=lambda guest: guest.uid)
        for guest in guests:
            await harness.poll(guest)
        await harness.label(unlisted, **{names.RUNNER: None})
        await harness.delete_pod(gone)
        for _ in range(2):
            await harness.server.recovery.pods.step()
        assert harness.slot(gone)["state"] == "closed" and harness.slot(unlisted)["state"] == "idle"

    play(scenario, database_url, app_keys, recover_limit=1)


def test_a_pod_that_is_offered_during_the_fence_keeps_its_runner(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await known(harness)
        guest = await stamped(harness, 1)
        await harness.clock.sleep(301)
        await harness.poll(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.path.endswith("/actions/runners"):
                harness.github_wire.tamper = None
                await harness.armed(guest)
            return await onward()

        harness.github_wire.tamper = tamper
        await harness.server.recovery.stamped.step()
        assert harness.github_wire.tamper is None, "it was looked up"
        assert harness.slot(guest)["state"] == "armed" and there(harness, guest) == [True]
        assert len(harness.github.runners()) == 1

    play(scenario, database_url, app_keys)


def test_open_slots_whose_pods_are_not_listed_are_proven_gone(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        gone, over, going, warm = [await harness.pod(n) for n in range(1, 5)]
        for guest in (gone, over, going, warm):
            await harness.poll(guest)
        await harness.delete_pod(gone)
        await harness.end_pod(over)
        body = {"metadata": {"finalizers": ["example.org/keep"]}}
        await harness.admin.patch(PODS, going.name, body, namespace=SPACE)
        await harness.admin.delete(PODS, going.name, namespace=SPACE, grace=0)
        await harness.server.recovery.pods.step()
        found = [harness.slot(guest)["state"] for guest in (gone, over, going, warm)]
        assert found == ["closed", "closed", "idle", "idle"]

    play(scenario, database_url, app_keys, recover_limit=2)


def test_an_unreadable_pod_does_not_block_the_others(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        guests = [await harness.pod(n) for n in range(1, 4)]
        for guest in guests:
            await harness.poll(guest)
        for guest in guests[:2]:
            await harness.delete_pod(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            first = min(guests[:2], key=lambda each: each.uid)
            return json_response(500, {}) if first.name in request.path else await onward()

        harness.kube_wire.tamper = tamper
        await harness.server.recovery.pods.step()
        assert sorted(harness.slot(guest)["state"] for guest in guests) == [
            "closed",
            "idle",
            "idle",
        ]

    play(scenario, database_url, app_keys)


def test_a_leak_with_the_name_of_an_open_slot_is_retired_too(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await known(harness)
        first = await harness.pod(1)
        await harness.poll(first)
        await harness.delete_pod(first)
        second = await harness.pod_only(first.name, **STAMP)
        await harness.clock.sleep(301)
        await recover(harness)
        assert harness.slot(first)["state"] == harness.slot(second)["state"] == "closed"
        assert there(harness, second) == [False]

    play(scenario, database_url, app_keys)


# ── registrations that nobody speaks for ────────────────────────────────────────────────────────

LONG = "a-pool-whose-name-is-so-long-that-names-of-runners-are-cut"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("mac-runner-0123abcd", True),
        ("mac-runner-0123abcd-99", False),
        ("mac-runner-0123ABCD", False),
        ("linux-runner-0123abcd", False),
        ("my-mac-runner-0123abcd", False),
        ("mac", False),
        ("", False),
        (names.runner_name(f"{LONG}-runner-0123abcd"), True),
    ],
)
def test_only_runner_names_of_our_pools_can_be_ghosts(name: str, ours: bool) -> None:
    listed = (Registration(runner_id=1, name=name, busy=False),)
    pools = ("mac", LONG)
    assert bool(unclaimed(listed, frozenset(), pools=pools)) is ours
    assert not unclaimed(listed, frozenset([name]), pools=pools)
    busy = (Registration(runner_id=1, name=name, busy=True),)
    assert not unclaimed(busy, frozenset(), pools=pools)


async def ghost(harness: Harness, guest: Guest, repo: str = "acme/app") -> None:
    """A registration whose slot is lost."""
    await harness.armed(guest, repo)
    harness.execute("UPDATE slots SET state = 'closed', fence = 'done', intended_job = NULL")
    harness.execute("UPDATE jobs SET state = 'done'")


def test_a_ghost_is_deleted_when_it_was_seen_twice(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await ghost(harness, await harness.pod(1))
        await harness.server.recovery.ghosts.step()
        assert len(harness.github.runners()) == 1, "seen once"
        await harness.clock.sleep(60)
        await harness.server.recovery.ghosts.step()
        assert len(harness.github.runners()) == 1, "too soon"
        await harness.clock.sleep(61)
        await harness.server.recovery.ghosts.step()
        assert not harness.github.runners()
        await harness.server.recovery.ghosts.step()
        assert harness.rows("SELECT * FROM ghost_sightings") == []

    play(scenario, database_url, app_keys)


def test_ghosts_of_an_earlier_installation_are_found_by_the_current_one(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await ghost(harness, await harness.pod(1))
        harness.execute("UPDATE slots SET installation_id = 999999")  # installed again since
        for _ in range(2):
            await harness.server.recovery.ghosts.step()
            await harness.clock.sleep(121)
        assert not harness.github.runners()

    play(scenario, database_url, app_keys)


def test_a_busy_or_claimed_registration_is_no_ghost(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        busy, armed = await harness.pod(1), await harness.pod(2)
        await harness.armed(busy)
        session = harness.github.connect(await harness.jit(busy))
        assert isinstance(session, RunnerSession)
        await harness.github.settle()
        harness.execute("DELETE FROM slots")
        await harness.armed(armed)
        for _ in range(3):
            await harness.server.recovery.ghosts.step()
            await harness.clock.sleep(121)
        assert len(harness.github.runners()) == 2 and not session.over

    play(scenario, database_url, app_keys)


def test_an_unreadable_scope_is_skipped_until_the_next_pass(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool()
        await ghost(harness, await harness.pod(1))
        await harness.server.recovery.ghosts.step()
        await harness.clock.sleep(200)
        harness.github.faults.outage = True
        await harness.server.recovery.ghosts.step()
        assert len(harness.github.runners()) == 1
        harness.github.faults.outage = False
        await harness.server.recovery.ghosts.step()
        assert not harness.github.runners()

    play(scenario, database_url, app_keys)


async def ghosts_in_two_scopes(harness: Harness) -> None:
    await harness.pool()
    for number, repo in ((1, "acme/app"), (2, "mona/dots")):
        await ghost(harness, await harness.pod(number), repo)
    await harness.server.recovery.ghosts.step()
    await harness.clock.sleep(121)
    assert len(harness.github.runners()) == 2


def test_a_hanging_scope_does_not_block_the_others(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await ghosts_in_two_scopes(harness)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.path.startswith("/orgs/acme/actions/runners"):
                await harness.clock.sleep(1000)
            return await onward()

        harness.github_wire.tamper = tamper
        for _ in range(2):
            with contextlib.suppress(TimeoutError, GitHubError):
                async with harness.clock.timeout(5):
                    await harness.server.recovery.ghosts.step()
        (left,) = harness.github.runners().values()
        assert left.name.endswith("1")

    play(scenario, database_url, app_keys)


def test_the_limit_is_per_tick_and_not_per_scope(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await ghosts_in_two_scopes(harness)
        for left in (1, 0):
            await harness.server.recovery.ghosts.step()
            assert len(harness.github.runners()) == left

    play(scenario, database_url, app_keys, recover_limit=1)


def test_one_replica_at_a_time_lists_pods_and_runners(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        await ghosts_in_two_scopes(harness)
        other = server.wire(harness.deps(name="server-2"))
        await harness.server.recovery.ghosts.step()
        await harness.server.recovery.pods.step()
        asked = len(harness.github_wire.requests), len(harness.kube_wire.requests)
        await other.recovery.ghosts.step()
        await other.recovery.pods.step()
        assert (len(harness.github_wire.requests), len(harness.kube_wire.requests)) == asked
        await harness.clock.sleep(31)
        await other.recovery.pods.step()
        assert len(harness.kube_wire.requests) > asked[1], "it follows one that does not come back"

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize(
    ("state", "fence", "leaks"),
    [
        pytest.param(None, Fence.NONE, 1, id="no slot"),
        pytest.param(SlotState.IDLE, Fence.NONE, 1, id="idle"),
        pytest.param(SlotState.ARMED, Fence.NONE, 0, id="a claim"),
        pytest.param(SlotState.CLOSED, Fence.DUE, 0, id="closed, its fence due"),
        pytest.param(SlotState.CLOSED, Fence.DONE, 0, id="closed since it was listed"),
    ],
)
def test_a_pod_that_was_proven_gone_after_the_list_is_no_leak(
    state: SlotState | None, fence: Fence, leaks: int
) -> None:
    pod = PodView(uid="u", name="p", pool="mac", owner="acme", created_at=0.0, ending=False)
    slot = None if state is None else SlotView(pod_uid="u", state=state, generation=7, fence=fence)
    found = find_leaks((pod,), () if slot is None else (slot,), now=400.0, grace=300.0, limit=5)
    assert len(found) == leaks
