"""The dispatch server as a process: its API, its dashboard and its probes.

On loopback it is open to this machine: guests, the operator and the practice GitHub speak to it there. When it is
to be reached from elsewhere too, a second socket serves the same over TLS, and there the dashboard asks for a token.

On one machine the processor of test results lives in this process, too: it works out of process anyway, and what it
needs is what the server has, the database and the objects. Its numbers are among the server's.
"""

import asyncio
import contextlib

from runyard.blobs.place import Directory, open_blobs
from runyard.db import migrate
from runyard.db.pooled import open_pool
from runyard.dispatch.machine.table import Deadlines
from runyard.dispatch.settings import Settings
from runyard.embedded.up.context import Context
from runyard.embedded.up.faults import with_faults
from runyard.embedded.up.roles.doors import looking, secrecy
from runyard.parts.processor import Processor, ProcessorDeps
from runyard.parts.results import ResultsSetup, keys_of
from runyard.parts.serving import Door, Replica, Setup, Tell
from runyard.xcresult.settings import Settings as Processing


async def run(context: Context) -> None:
    """Serve until cancelled."""
    async with contextlib.AsyncExitStack() as stack:
        setup = await _setup(context, stack)
        replica, migrated = Replica(setup), asyncio.Event()

        async def prepare(_: Tell) -> None:
            await asyncio.to_thread(migrate.apply, context.boot.database)
            migrated.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(_process(context, setup, replica, migrated))
            await replica.run(prepare=prepare, ready=lambda _: context.ready())


async def _process(
    context: Context, setup: Setup, replica: Replica, migrated: asyncio.Event
) -> None:
    """Process test results, as soon as there are tables for them."""
    assert setup.results is not None
    await migrated.wait()
    how = Processing(scratch=context.boot.layout.scratch, slots=1)
    patient = open_pool(
        context.boot.database,
        clock=context.clock,
        rng=context.rng,
        max_size=1,
        deadline=how.results_within,
    )
    async with patient as results:
        deps = ProcessorDeps(
            name=f"{context.boot.name}-processor",
            clock=context.clock,
            rng=context.rng,
            log=context.log(),
            settings=how,
            database=setup.database,
            results=results,
            blobs=setup.results.blobs,
            meter=replica.deps.meter,
        )
        await Processor(deps).run(ending=asyncio.Event())


async def _setup(context: Context, stack: contextlib.AsyncExitStack) -> Setup:
    boot = context.boot
    pool = open_pool(boot.database, clock=context.clock, rng=context.rng)
    kube, github = context.kube(), context.github()
    stack.push_async_callback(kube.close)
    stack.push_async_callback(github.close)
    return Setup(
        name=boot.name,
        clock=context.clock,
        rng=context.rng,
        log=context.log(),
        settings=settings(context),
        kube=with_faults(kube, boot),
        token=context.token(boot.name),
        github=github,
        auth=context.auth(),
        database=await stack.enter_async_context(pool),
        results=ResultsSetup(
            blobs=open_blobs(Directory(path=boot.layout.blobs), clock=context.clock),
            keys=keys_of(context.secrets().seal),
        ),
        doors=tuple(
            Door(sock=sock, looking=looking(context, address), tls=secrecy(context, address))
            for address, sock in context.sockets()
        ),
    )


def settings(context: Context) -> Settings:
    """The server's, at this machine's pace."""
    pace, hub = context.boot.pace, context.boot.github
    return Settings(
        webhook_secrets=context.webhook_secrets(),
        seal_key=context.secrets().seal,
        intake="pull" if hub is not None and hub.pull else "webhook",
        runner_group=1 if hub is None else hub.runner_group,
        deadlines=Deadlines(offered=pace.offered, armed=pace.armed, draining=pace.draining),
        poll_wait_max=pace.poll_wait,
        mint_within=min(6.0, pace.offered * 0.75),
        clear_within=min(1.5, pace.offered * 0.2),
        stamped_grace=pace.stamped_grace,
        silent_grace=pace.silent_grace,
        recover_every=pace.recover_every,
        pods_every=pace.pods_every,
        sweep_every=pace.sweep_every,
        read_every=pace.read_every,
        pools_every=pace.pools_every,
        ghosts_every=pace.ghosts_every,
        ghost_age=pace.ghost_age,
        audit_every=pace.audit_every,
        audit_settle=pace.audit_settle,
    )
