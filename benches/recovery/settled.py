"""Lists everything that keeps a fleet from being at rest, and waits until the list is empty.

At rest every job has run exactly once and its end is recorded, no claim, fence, stamp or registration is left, and
exactly the pool's replicas exist as Pods, each with its ServiceAccount, each polling for work.
"""

import asyncio

from benches.recovery.fleet import Fleet

from runyard.wire import names

_LOOK = 0.05
_OPEN = """
SELECT 'slot ' || state || CASE WHEN fence = 'due' THEN ' with a fence due' ELSE '' END AS what, count(*) AS many
FROM slots WHERE state NOT IN ('idle', 'closed') OR fence = 'due' GROUP BY 1
UNION ALL SELECT 'job ' || state, count(*) FROM jobs WHERE state <> 'done' GROUP BY 1
UNION ALL SELECT 'claim', count(*) FROM runner_claims HAVING count(*) > 0
ORDER BY 1
"""
_KNOWN = "SELECT count(*) AS many FROM jobs"


async def left(fleet: Fleet, *, rows: bool = True) -> list[str]:
    """List what keeps the fleet from settling; reads the rows only if the cheap checks find nothing."""
    found = _jobs(fleet) + [f"runner {each.name}" for each in fleet.github.runners().values()]
    pods = await fleet.pods()
    found += [
        f"stamp on {pod.metadata.name}"
        for pod in pods
        if names.POOL_OWNER in pod.metadata.labels or names.RUNNER_ACCOUNT in pod.metadata.labels
    ]
    found += [
        f"Pod {pod.metadata.name} {pod.status.phase}"
        for pod in pods
        if pod.status.phase != "Running" or pod.metadata.deletion_timestamp
    ]
    if len(pods) != fleet.sizes.replicas:
        found.append(f"{len(pods)} Pods")
    if await fleet.accounts() != tuple(sorted(pod.metadata.name for pod in pods)):
        found.append("ServiceAccounts without Pods")
    if found or not rows:
        return found
    return await _rows(fleet)


def _jobs(fleet: Fleet) -> list[str]:
    jobs = fleet.github.jobs()
    found = []
    for number in fleet.jobs:
        job = jobs[number]
        if job.executions > 1:
            raise AssertionError(f"job {number} was given to {job.executions} runners")
        if job.status != "completed":
            found.append(f"job {number} {job.status} at GitHub")
        elif job.conclusion not in ("success", "cancelled"):
            raise AssertionError(f"job {number}: {job.conclusion}: {job.history}")
    return found


async def _rows(fleet: Fleet) -> list[str]:
    found = [f"{row['many']} {row['what']}" for row in await fleet.sql(_OPEN)]
    (known,) = await fleet.sql(_KNOWN)
    if known["many"] < len(fleet.jobs):
        found.append(f"{len(fleet.jobs) - known['many']} jobs that the server has not heard of")
    return found


async def at_rest(fleet: Fleet, *, within: float) -> float:
    """Wait until the fleet has settled; returns the seconds. After `within` it raises with what is left."""
    clock, started, found = fleet.clock, fleet.clock.monotonic(), ["not looked yet"]
    while clock.monotonic() - started < within:
        if fleet.running is not None and fleet.running.done():
            fleet.running.result()  # the rest of the fleet has failed: raise that error instead
        found = await left(fleet)
        if found:
            fleet.last = found
        else:
            return clock.monotonic() - started
        await asyncio.sleep(_LOOK)
    logs = "\n".join(server.tail(15) for server in fleet.servers)
    raise AssertionError(f"not at rest after {within:g} s: {'; '.join(found[:12])}\n{logs}")
