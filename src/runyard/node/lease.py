"""The heartbeat that the control plane judges this host by: one small object, renewed every few seconds.

It has a loop of its own and asks nothing of the VM driver, so no slow probe and no pull can make a
healthy host look dead.
"""

from runyard.kube.lease import renew_lease
from runyard.node.deps import OUTSIDE, Deps
from runyard.telemetry.loops import run_loop
from runyard.wire import names


class LeaseLoop:
    """Renews this Node's lease."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    async def run(self) -> None:
        """Renew for ever; after a failure soon again."""
        every = self._deps.settings.lease_every
        await run_loop(
            "lease",
            self.step,
            clock=self._deps.clock,
            meter=self._deps.meter,
            log=self._deps.log,
            every=every,
            deadline=every,
            expected=OUTSIDE,
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
