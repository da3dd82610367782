"""The pool operator as a process of `runyard up`, with its probes and elected as on a cluster.

It takes part in the election under one name for all of its lives, so a restarted operator takes its own Lease over at
once instead of waiting until it expires. That is safe here: the supervisor starts an operator only after the last one
has exited, and every process of a machine holds the lock of its data directory, so two machines cannot share an API.
A write that the last one had sent before it was killed has reached the API by then. The API reads it before the new
operator's third request (it reads and writes the Lease first), so the new operator's lists contain it. Shorter periods
instead would make the leadership depend on how busy the machine is: a pause of a few seconds would end it.
"""

from runyard.components import operator
from runyard.components.operator import Candidate
from runyard.embedded.up.context import Context, transport
from runyard.embedded.up.roles.access import probe_sockets
from runyard.kube.client import Kube
from runyard.pools.deps import Deps
from runyard.pools.settings import Settings
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.wire import names
from runyard.wire.paths import DISPATCH

IDENTITY = "runyard-up"


async def run(context: Context) -> None:
    """Reconcile the pools until cancelled."""
    boot, pace = context.boot, context.boot.pace
    kube, server = context.kube(), transport(boot.server_url)
    token = context.token(boot.name)
    deps = Deps(
        kube=Kube(kube, agent=names.CONTROLLER_ACCOUNT, token=token),
        server=server,
        token=token,
        clock=context.clock,
        rng=context.rng,
        meter=Meter(),
        log=context.log(),
        settings=Settings(
            dispatch_url=boot.server_url + DISPATCH,
            orphan_grace_seconds=pace.orphan_grace,
            drain_seconds=pace.drain_seconds,
        ),
        health=Health(context.clock, conditions.ALL),
        freshness=Freshness(context.clock),
    )
    try:
        await operator.serve(
            deps,
            probe_sockets(context),
            ready=lambda _: context.ready(),
            candidate=Candidate(identity=IDENTITY),
        )
    finally:
        await kube.close()
        await server.close()
