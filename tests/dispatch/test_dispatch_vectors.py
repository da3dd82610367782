"""The three ways in which stamped Pods once leaked and filled two nodes' memory do not leak any more.

On a real Postgres, the embedded Kubernetes API and the practice GitHub. `tests/recovery` ends a real process between
the stamp and the commit; here only the mint stops there.
"""

import asyncio
import contextlib

from tests.dispatch.dispatchworld import SPACE, Guest, Onward, World, play

from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT


async def started(world: World) -> Guest:
    await world.pool()
    guest = await world.pod()
    world.served_long()
    return guest


async def recover(world: World) -> None:
    """Run each loop once."""
    await world.server.recovery.sweeper.step()
    await world.server.recovery.pods.step()
    await world.server.recovery.stamped.step()
    await world.server.recovery.sweeper.step()


def gone(world: World, guest: Guest) -> bool:
    return all(
        world.kube.find(kind, SPACE, guest.name) is None for kind in ("pods", "serviceaccounts")
    )


def test_a_failed_mint_after_the_stamp_leaves_an_unstamped_idle_runner(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        stamped = asyncio.Event()

        async def refuse(request: Request, onward: Onward) -> Response | Stream:
            if not request.path.endswith("/generate-jitconfig"):
                return await onward()
            await stamped.wait()
            return json_response(422, {"message": "no"})

        async def stamp(request: Request, onward: Onward) -> Response | Stream:
            answer = await onward()
            if request.method == "PATCH":
                stamped.set()
            return answer

        job = await world.offered(guest)
        world.github_wire.tamper, world.kube_wire.tamper = refuse, stamp
        await world.mint()
        assert stamped.is_set()
        assert world.slot(guest)["state"] == "idle" and world.stamp(guest) == ""
        assert world.job(job)["state"] == "queued"
        await world.clock.sleep(400)
        await world.poll(guest)
        await recover(world)
        assert not gone(world, guest), "it is well, and serves the next job"
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod") is None

    play(scenario, database_url, app_keys)


def test_a_failed_mint_with_a_remaining_stamp_deletes_the_pod(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job = await world.offered(guest)
        patches: list[Request] = []

        async def once(request: Request, onward: Onward) -> Response | Stream:
            if request.method == "PATCH":
                patches.append(request)
                if len(patches) > 1:
                    return json_response(500, {"message": "not now"})
            return await onward()

        async def refuse(request: Request, onward: Onward) -> Response | Stream:
            if request.path.endswith("/generate-jitconfig"):
                return json_response(422, {"message": "no"})
            return await onward()

        world.kube_wire.tamper, world.github_wire.tamper = once, refuse
        await world.mint()
        world.kube_wire.tamper = world.github_wire.tamper = None
        assert world.stamp(guest) == "acme", "it could not be taken off"
        world.overdue(guest)
        await recover(world)
        world.overdue(guest)
        await recover(world)
        assert gone(world, guest) and world.slot(guest)["state"] == "closed"
        assert world.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys)


def test_a_server_that_ends_between_stamp_and_commit_leaks_nothing(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job = await world.offered(guest)
        stamped = asyncio.Event()

        async def hang(request: Request, onward: Onward) -> Response | Stream:
            answer = await onward()
            if request.method == "PATCH":
                stamped.set()
                await asyncio.Event().wait()
            return answer

        world.kube_wire.tamper = hang
        mint = asyncio.create_task(world.mints.pop(0))  # type: ignore[arg-type]  # a coroutine
        await stamped.wait()
        mint.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await mint
        world.kube_wire.tamper = None
        assert world.slot(guest)["state"] == "offered" and world.stamp(guest) == "acme"
        await world.clock.sleep(9)  # the offer's own deadline, and not five minutes
        await recover(world)
        assert world.job(job)["state"] == "queued"
        await recover(world)
        assert gone(world, guest) and not world.github.runners()
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="stale_claim") == 1

    play(scenario, database_url, app_keys)


def test_a_stamped_pod_with_lost_rows_is_found(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        await world.armed(guest)
        world.execute("DELETE FROM slots")
        world.execute("UPDATE jobs SET state = 'queued', verified = false")
        await world.clock.sleep(301)
        await recover(world)
        assert gone(world, guest) and not world.github.runners()
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod") == 1

    play(scenario, database_url, app_keys)


def test_a_runner_that_never_registers_loses_its_job_and_its_pod(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(world: World) -> None:
        guest = await started(world)
        job = await world.armed(guest)
        await world.jit(guest)  # it gets its JIT, and never registers
        await world.clock.sleep(121)
        await recover(world)
        assert world.job(job)["state"] == "queued"
        await recover(world)
        assert gone(world, guest) and world.slot(guest)["state"] == "closed"
        assert not world.github.runners()
        assert world.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphan_requeued") == 1

    play(scenario, database_url, app_keys)
