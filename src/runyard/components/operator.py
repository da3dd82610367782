"""Starts the pool operator: alone, or as one of several replicas of which one leads.

`runyard operator`, `runyard up`, the simulator and the tests start it here. A replica that does not lead only reads the
lease. When it is elected it makes a new `Operator`, whose caches begin with fresh lists: they contain every write of
the leader before, because none of those writes can still be under way.

Invariants:
- With a candidate, every write of the operator (to Kubernetes and to the server) passes the leadership's gate; only
  the writes of the lease itself do not.
- A replica that follows is ready: nothing is expected of loops that run only on the leader.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from runyard.components.probing import ProbeSocket, served
from runyard.components.reporting import check_denied, with_reports
from runyard.http.messages import Transport
from runyard.kube.election import Election, ElectionDeps
from runyard.kube.leadership import Leadership, LeaderTransport
from runyard.kube.plans.election import Timing
from runyard.pools.deps import Deps
from runyard.pools.operator import Operator
from runyard.wire import names


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """How one of several replicas takes part in the election of a leader."""

    identity: str
    """Different for every process; two may share it only if the first has certainly ended when the second starts."""
    namespace: str = names.CONTROLLER_NAMESPACE
    lease: str = names.CONTROLLER_LEASE
    timing: Timing = Timing()


async def run(deps: Deps, *, candidate: Candidate | None = None) -> None:
    """Reconcile every pool until cancelled; with a candidate, only while this replica leads."""
    await _run(_reporting(deps), candidate)


async def serve(
    given: Deps,
    sockets: Sequence[ProbeSocket],
    *,
    ready: Callable[[tuple[str, ...]], None],
    candidate: Candidate | None = None,
) -> None:
    """Run with probes until cancelled; `ready` gets the URLs of the probes once they answer."""
    deps = _reporting(given)
    async with served("runyard operator", deps, sockets) as urls, asyncio.TaskGroup() as group:
        group.create_task(_run(deps, candidate))
        group.create_task(check_denied(deps.kube, deps))
        ready(urls)


def _reporting(deps: Deps) -> Deps:
    kube = with_reports(deps.kube, deps.health, meter=deps.meter, log=deps.log)
    return msgspec.structs.replace(deps, kube=kube)


async def _run(deps: Deps, candidate: Candidate | None) -> None:
    if candidate is None:
        await Operator(deps).run()
        return
    leadership = Leadership(clock=deps.clock, timing=candidate.timing)

    def gated(transport: Transport) -> Transport:
        return LeaderTransport(transport, leadership)

    leading = msgspec.structs.replace(
        deps,
        kube=deps.kube.through(gated),
        server=None if deps.server is None else gated(deps.server),
    )

    async def lead() -> None:
        operator = Operator(leading)
        try:
            await operator.run()
        finally:
            operator.withdraw()

    election = Election(
        ElectionDeps(
            kube=deps.kube,
            name=candidate.lease,
            namespace=candidate.namespace,
            identity=candidate.identity,
            clock=deps.clock,
            rng=deps.rng,
            meter=deps.meter,
            log=deps.log,
            freshness=deps.freshness,
            timing=candidate.timing,
        ),
        leadership,
    )
    await election.run(lead)
