"""The three ways in which stamped Pods once leaked and filled two nodes' memory do not leak any more.

On a real Postgres, the embedded Kubernetes API and the practice GitHub. `tests/recovery` ends a real process between
the stamp and the commit; here only the mint stops there.
"""

import asyncio
import contextlib

from tests.dispatch.dispatchharness import SPACE, Guest, Harness, Onward, play

from runyard.embedded.github.identity import KeyPair
from runyard.http.messages import Request, Response, Stream, json_response
from runyard.telemetry.catalogue import TUIST_RUNNERS_RECOVERY_COUNT


async def started(harness: Harness) -> Guest:
    await harness.pool()
    guest = await harness.pod()
    harness.served_long()
    return guest


async def recover(harness: Harness) -> None:
    """Run each loop once."""
    await harness.server.recovery.sweeper.step()
    await harness.server.recovery.pods.step()
    await harness.server.recovery.stamped.step()
    await harness.server.recovery.sweeper.step()


def gone(harness: Harness, guest: Guest) -> bool:
    return all(
        harness.kube.find(kind, SPACE, guest.name) is None for kind in ("pods", "serviceaccounts")
    )


def test_a_failed_mint_after_the_stamp_leaves_an_unstamped_idle_runner(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
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

        job = await harness.offered(guest)
        harness.github_wire.tamper, harness.kube_wire.tamper = refuse, stamp
        await harness.mint()
        assert stamped.is_set()
        assert harness.slot(guest)["state"] == "idle" and harness.stamp(guest) == ""
        assert harness.job(job)["state"] == "queued"
        await harness.clock.sleep(400)
        await harness.poll(guest)
        await recover(harness)
        assert not gone(harness, guest), "it is well, and serves the next job"
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod") is None

    play(scenario, database_url, app_keys)


def test_a_failed_mint_with_a_remaining_stamp_costs_no_pod(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job = await harness.offered(guest)
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

        harness.kube_wire.tamper, harness.github_wire.tamper = once, refuse
        await harness.mint()
        harness.kube_wire.tamper = harness.github_wire.tamper = None
        assert harness.stamp(guest) == "acme", "it could not be taken off"
        harness.overdue(guest)
        await recover(harness)
        assert harness.stamp(guest) == "" and harness.slot(guest)["state"] == "idle"
        assert harness.job(job)["state"] == "queued"

    play(scenario, database_url, app_keys)


def test_a_server_that_ends_between_stamp_and_commit_leaks_nothing(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job = await harness.offered(guest)
        stamped = asyncio.Event()

        async def hang(request: Request, onward: Onward) -> Response | Stream:
            answer = await onward()
            if request.method == "PATCH":
                stamped.set()
                await asyncio.Event().wait()
            return answer

        harness.kube_wire.tamper = hang
        mint = asyncio.create_task(harness.mints.pop(0))  # type: ignore[arg-type]  # a coroutine
        await stamped.wait()
        mint.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await mint
        harness.kube_wire.tamper = None
        assert harness.slot(guest)["state"] == "offered" and harness.stamp(guest) == "acme"
        await harness.clock.sleep(9)  # the offer's own deadline, and not five minutes
        await recover(harness)
        assert harness.job(job)["state"] == "queued"
        await recover(harness)
        assert gone(harness, guest) and not harness.github.runners()
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="stale_claim") == 1

    play(scenario, database_url, app_keys)


def test_a_stamped_pod_with_lost_rows_is_found(database_url: str, app_keys: KeyPair) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        await harness.armed(guest)
        harness.execute("DELETE FROM slots")
        harness.execute("UPDATE jobs SET state = 'queued', verified = false")
        await harness.clock.sleep(301)
        await recover(harness)
        assert gone(harness, guest) and not harness.github.runners()
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphaned_stamped_pod") == 1

    play(scenario, database_url, app_keys)


def test_a_runner_that_never_registers_loses_its_job_and_its_pod(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        guest = await started(harness)
        job = await harness.armed(guest)
        await harness.jit(guest)  # it gets its JIT, and never registers
        await harness.clock.sleep(121)
        await recover(harness)
        assert harness.job(job)["state"] == "queued"
        await recover(harness)
        assert gone(harness, guest) and harness.slot(guest)["state"] == "closed"
        assert not harness.github.runners()
        assert harness.meter.get(TUIST_RUNNERS_RECOVERY_COUNT, kind="orphan_requeued") == 1

    play(scenario, database_url, app_keys)
