"""Leaked Pods, slots and registrations are recovered, and nothing else is deleted."""

import contextlib

import pytest
from tests.dispatch.dispatchworld import SPACE, Guest, Onward, World, play

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


async def stamped(world: World, number: int) -> Guest:
    return await world.pod(number, **STAMP)


async def known(world: World) -> None:
    """Insert the tenant, as its first webhook does."""
    await world.pool()
    await world.queued("acme/app", ("ubuntu-latest",))


async def recover(world: World) -> None:
    await world.server.recovery.pods.step()
    await world.server.recovery.stamped.step()
    world.served_long()
    await world.server.recovery.sweeper.step()


def there(world: World, *guests: Guest) -> list[bool]:
    return [world.kube.find("pods", SPACE, guest.name) is not None for guest in guests]


def test_a_stamped_pod_without_a_claim_is_reaped_with_its_account(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await known(world)
        never_polled, polled = await stamped(world, 1), await stamped(world, 2)
        await world.poll(polled)
        await world.clock.sleep(301)
        await world.poll(polled)  # it polls for ever, as such Pods do
        await recover(world)
        assert there(world, never_polled, polled) == [False, False]
        assert world.kube.find("serviceaccounts", SPACE, polled.name) is None
        assert world.slot(polled)["state"] == world.slot(never_polled)["state"] == "closed"
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod") == 2

    play(scenario, database_url, app_keys)


def test_only_leaked_pods_of_a_mixed_batch_are_deleted(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await known(world)
        claimed, leaked, warm = await world.pod(1), await stamped(world, 2), await world.pod(3)
        unknown = await world.pod(5, **{names.POOL_OWNER: "nobody-we-know"})
        await world.armed(claimed)
        await world.poll(warm)
        await world.clock.sleep(301)
        world.execute("UPDATE slots SET deadline = '2100-01-01Z'")
        young = await stamped(world, 4)
        await world.poll(warm)
        await recover(world)
        pods = (claimed, leaked, warm, young, unknown)
        assert there(world, *pods) == [True, False, True, True, True]

    play(scenario, database_url, app_keys)


def test_a_polling_pod_with_an_unknown_owners_stamp_is_retired(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await known(world)
        stranger = {names.POOL_OWNER: "nobody-we-know"}
        asks, silent = await world.pod(1, **stranger), await world.pod(2, **stranger)
        for guest in (asks, silent):
            await world.poll(guest)
        await world.clock.sleep(301)
        await world.poll(asks)
        await recover(world)
        assert there(world, asks, silent) == [False, True], "the silent one may be at work"

    play(scenario, database_url, app_keys)


@pytest.mark.parametrize("how", ["500", "lost", "nonsense"])
def test_a_failed_list_retires_no_pod(database_url: str, app_keys: KeyPair, how: str) -> None:
    async def scenario(world: World) -> None:
        await known(world)
        guest = await stamped(world, 1)
        await world.clock.sleep(400)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if not request.path.endswith("/pods"):
                return await onward()
            if how == "lost":
                raise OutcomeUnknown("lost")
            return json_response(200 if how == "nonsense" else 500, {"items": [{"metadata": 3}]})

        world.kube_wire.tamper = tamper
        for reconciler in (world.server.recovery.pods, world.server.recovery.stamped):
            with pytest.raises((KubeError, OutcomeUnknown)):
                await reconciler.step()
        assert there(world, guest) == [True] and world.slot(guest) == {}

    play(scenario, database_url, app_keys)


def test_an_empty_list_retires_no_pod(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await known(world)
        guest = await world.pod(1)
        await world.poll(guest)
        await world.delete_pod(guest)
        asked = len(world.kube_wire.requests)
        await world.server.recovery.pods.step()
        assert len(world.kube_wire.requests) == asked + 1
        assert world.slot(guest)["state"] == "idle"

    play(scenario, database_url, app_keys)


def test_a_busy_runner_is_not_deleted_although_its_rows_are_lost(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guest = await world.pod(1)
        await world.armed(guest)
        session = world.github.connect(await world.jit(guest))
        assert isinstance(session, RunnerSession)
        await world.github.settle()
        world.execute("DELETE FROM slots")  # the database was restored from yesterday
        await world.clock.sleep(400)
        for _ in range(3):
            await recover(world)
        assert there(world, guest) == [True] and not session.over
        world.github.faults.outage = True
        await recover(world)
        assert there(world, guest) == [True], "GitHub could not be asked"
        world.github.faults.outage = False
        session.finish("success")
        await recover(world)
        assert there(world, guest) == [False]

    play(scenario, database_url, app_keys)


def test_the_runner_of_a_leaked_pod_is_fenced_before_the_pod_is_deleted(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        for guest, repo in ((await world.pod(1), "acme/app"), (await world.pod(2), "mona/dots")):
            await world.armed(guest, repo)
        world.execute("DELETE FROM slots")
        world.execute("UPDATE jobs SET state = 'queued', verified = false")
        await world.clock.sleep(400)
        assert len(world.github.runners()) == 2
        await recover(world)
        assert not world.github.runners() and not world.kube.objects("pods")

    play(scenario, database_url, app_keys)


async def refused(world: World) -> None:
    """A mint that GitHub certainly refuses: its stamp is cleared, and the Pod is idle again."""

    async def tamper(request: Request, onward: Onward) -> Response | Stream:
        minting = request.path.endswith("/generate-jitconfig")
        return json_response(422, {"message": "no"}) if minting else await onward()

    world.github_wire.tamper = tamper
    await world.mint()
    world.github_wire.tamper = None
    world.execute("DELETE FROM exclusions")


@pytest.mark.parametrize("offered_again", [False, True])
def test_a_pod_whose_stamp_was_cleared_after_the_list_is_kept(
    database_url: str, app_keys: KeyPair, offered_again: bool
) -> None:
    async def scenario(world: World) -> None:
        await known(world)
        guest = await world.pod(1)
        await world.clock.sleep(301)
        await world.offered(guest)
        await world.label(guest, **STAMP)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.path.endswith("/pods"):
                answer = await onward()  # with the stamp
                await refused(world)
                assert world.slot(guest)["state"] == "idle" and world.stamp(guest) == ""
                return answer
            if offered_again and request.method == "GET" and guest.name in request.path:
                world.kube_wire.tamper = None
                await world.armed(guest)
            return await onward()

        world.kube_wire.tamper = tamper
        await world.server.recovery.stamped.step()
        world.kube_wire.tamper = None
        world.served_long()
        await world.server.recovery.sweeper.step()
        assert there(world, guest) == [True]
        assert world.slot(guest)["state"] == ("armed" if offered_again else "idle")
        assert len(world.github.runners()) == offered_again

    play(scenario, database_url, app_keys)


def test_leaks_that_cannot_be_retired_are_reported_and_do_not_block_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        health = Health(world.clock, conditions.ALL)
        wired = server.wire(world.deps(health=health))
        await known(world)
        strange = [await world.pod(n, **{names.POOL_OWNER: "nobody-we-know"}) for n in (1, 2)]
        await world.clock.sleep(1)
        leaked = await stamped(world, 3)
        await world.clock.sleep(301)
        for _ in range(3):
            await wired.recovery.stamped.step()
        assert world.slot(leaked)["state"] == "draining"
        reported = [(each.code, each.message) for each in health.report()]
        names_of = ", ".join(guest.name for guest in strange)
        assert reported == [("unknown-stamp-owner", f"2: {names_of}")]
        for guest in strange:
            await world.delete_pod(guest)
        await wired.recovery.stamped.step()
        assert health.report() == ()

    play(scenario, database_url, app_keys, recover_limit=1)


def test_slots_with_unlisted_pods_do_not_block_the_proof_of_others(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guests = [await world.pod(number) for number in range(1, 4)]
        unlisted, gone, _ = sorted(guests, key=lambda guest: guest.uid)
        for guest in guests:
            await world.poll(guest)
        await world.label(unlisted, **{names.RUNNER: None})
        await world.delete_pod(gone)
        for _ in range(2):
            await world.server.recovery.pods.step()
        assert world.slot(gone)["state"] == "closed" and world.slot(unlisted)["state"] == "idle"

    play(scenario, database_url, app_keys, recover_limit=1)


def test_a_pod_that_is_offered_during_the_fence_keeps_its_runner(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await known(world)
        guest = await stamped(world, 1)
        await world.clock.sleep(301)
        await world.poll(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.path.endswith("/actions/runners"):
                world.github_wire.tamper = None
                await world.armed(guest)
            return await onward()

        world.github_wire.tamper = tamper
        await world.server.recovery.stamped.step()
        assert world.github_wire.tamper is None, "it was looked up"
        assert world.slot(guest)["state"] == "armed" and there(world, guest) == [True]
        assert len(world.github.runners()) == 1

    play(scenario, database_url, app_keys)


def test_open_slots_whose_pods_are_not_listed_are_proven_gone(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        gone, over, going, warm = [await world.pod(n) for n in range(1, 5)]
        for guest in (gone, over, going, warm):
            await world.poll(guest)
        await world.delete_pod(gone)
        await world.end_pod(over)
        body = {"metadata": {"finalizers": ["example.org/keep"]}}
        await world.admin.patch(PODS, going.name, body, namespace=SPACE)
        await world.admin.delete(PODS, going.name, namespace=SPACE, grace=0)
        await world.server.recovery.pods.step()
        found = [world.slot(guest)["state"] for guest in (gone, over, going, warm)]
        assert found == ["closed", "closed", "idle", "idle"]

    play(scenario, database_url, app_keys, recover_limit=2)


def test_an_unreadable_pod_does_not_block_the_others(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        guests = [await world.pod(n) for n in range(1, 4)]
        for guest in guests:
            await world.poll(guest)
        for guest in guests[:2]:
            await world.delete_pod(guest)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            first = min(guests[:2], key=lambda each: each.uid)
            return json_response(500, {}) if first.name in request.path else await onward()

        world.kube_wire.tamper = tamper
        await world.server.recovery.pods.step()
        assert sorted(world.slot(guest)["state"] for guest in guests) == ["closed", "idle", "idle"]

    play(scenario, database_url, app_keys)


def test_a_leak_with_the_name_of_an_open_slot_is_retired_too(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await known(world)
        first = await world.pod(1)
        await world.poll(first)
        await world.delete_pod(first)
        second = await world.pod_only(first.name, **STAMP)
        await world.clock.sleep(301)
        await recover(world)
        assert world.slot(first)["state"] == world.slot(second)["state"] == "closed"
        assert there(world, second) == [False]

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


async def ghost(world: World, guest: Guest, repo: str = "acme/app") -> None:
    """A registration whose slot is lost."""
    await world.armed(guest, repo)
    world.execute("UPDATE slots SET state = 'closed', fence = 'done', intended_job = NULL")
    world.execute("UPDATE jobs SET state = 'done'")


def test_a_ghost_is_deleted_when_it_was_seen_twice(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        await ghost(world, await world.pod(1))
        await world.server.recovery.ghosts.step()
        assert len(world.github.runners()) == 1, "seen once"
        await world.clock.sleep(60)
        await world.server.recovery.ghosts.step()
        assert len(world.github.runners()) == 1, "too soon"
        await world.clock.sleep(61)
        await world.server.recovery.ghosts.step()
        assert not world.github.runners()
        await world.server.recovery.ghosts.step()
        assert world.rows("SELECT * FROM ghost_sightings") == []

    play(scenario, database_url, app_keys)


def test_a_busy_or_claimed_registration_is_no_ghost(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        busy, armed = await world.pod(1), await world.pod(2)
        await world.armed(busy)
        session = world.github.connect(await world.jit(busy))
        assert isinstance(session, RunnerSession)
        await world.github.settle()
        world.execute("DELETE FROM slots")
        await world.armed(armed)
        for _ in range(3):
            await world.server.recovery.ghosts.step()
            await world.clock.sleep(121)
        assert len(world.github.runners()) == 2 and not session.over

    play(scenario, database_url, app_keys)


def test_an_unreadable_scope_is_skipped_until_the_next_pass(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        await world.pool()
        await ghost(world, await world.pod(1))
        await world.server.recovery.ghosts.step()
        await world.clock.sleep(200)
        world.github.faults.outage = True
        await world.server.recovery.ghosts.step()
        assert len(world.github.runners()) == 1
        world.github.faults.outage = False
        await world.server.recovery.ghosts.step()
        assert not world.github.runners()

    play(scenario, database_url, app_keys)


async def ghosts_in_two_scopes(world: World) -> None:
    await world.pool()
    for number, repo in ((1, "acme/app"), (2, "mona/dots")):
        await ghost(world, await world.pod(number), repo)
    await world.server.recovery.ghosts.step()
    await world.clock.sleep(121)
    assert len(world.github.runners()) == 2


def test_a_hanging_scope_does_not_block_the_others(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await ghosts_in_two_scopes(world)

        async def tamper(request: Request, onward: Onward) -> Response | Stream:
            if request.path.startswith("/orgs/acme/actions/runners"):
                await world.clock.sleep(1000)
            return await onward()

        world.github_wire.tamper = tamper
        for _ in range(2):
            with contextlib.suppress(TimeoutError, GitHubError):
                async with world.clock.timeout(5):
                    await world.server.recovery.ghosts.step()
        (left,) = world.github.runners().values()
        assert left.name.endswith("1")

    play(scenario, database_url, app_keys)


def test_the_limit_is_per_tick_and_not_per_scope(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await ghosts_in_two_scopes(world)
        for left in (1, 0):
            await world.server.recovery.ghosts.step()
            assert len(world.github.runners()) == left

    play(scenario, database_url, app_keys, recover_limit=1)


def test_one_replica_at_a_time_lists_pods_and_runners(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        await ghosts_in_two_scopes(world)
        other = server.wire(world.deps(name="server-2"))
        await world.server.recovery.ghosts.step()
        await world.server.recovery.pods.step()
        asked = len(world.github_wire.requests), len(world.kube_wire.requests)
        await other.recovery.ghosts.step()
        await other.recovery.pods.step()
        assert (len(world.github_wire.requests), len(world.kube_wire.requests)) == asked
        await world.clock.sleep(31)
        await other.recovery.pods.step()
        assert len(world.kube_wire.requests) > asked[1], "it follows one that does not come back"

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
