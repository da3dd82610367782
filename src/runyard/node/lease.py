"""Renews this Node's lease, the heartbeat from which Kubernetes decides whether the host is alive.

It has a loop of its own and never calls the VM driver, so that no slow probe and no pull can make a healthy host
appear dead.
"""

from runyard.kube.lease import renew_lease
from runyard.node.deps import DEPENDENCY_ERRORS, Deps
from runyard.telemetry.loops import run_loop
from runyard.telemetry.names import Loop
from runyard.wire import names


class LeaseLoop:
    """Renews this Node's lease."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def run(self) -> None:
        """Renew forever; retry soon after a failure."""
        every = self._deps.settings.lease_every
        await run_loop(
            Loop.NODE_LEASE,
            self.step,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            every=every,
            deadline=every,
            expected=DEPENDENCY_ERRORS,
            freshness=self._deps.freshness,
            max_backoff=every,
        )

    async def step(self) -> None:
        """Renew once."""
        settings = self._deps.settings
        await renew_lease(
            self._deps.kube,
            name=settings.node_name,
            namespace=names.NODE_LEASE_NAMESPACE,
            holder=settings.node_name,
            duration=settings.lease_duration,
            now=self._deps.clock.now(),
        )
