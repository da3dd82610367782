"""Runs the dispatch server as a process of `runyard up`: its API, its dashboard and its probes.

Guests, the operator and the practice GitHub call it on loopback, each with a credential of its own. With `--listen` a
second socket serves the same to other machines over TLS. The dashboard requires a token on both.

On one machine the processor of test results runs in this process, too: it reads bundles in child processes anyway, and
needs the same database and object storage. Its metrics are among the server's.
"""

import asyncio
import contextlib

from runyard.blobs.contract import Blobs
from runyard.blobs.location import Directory
from runyard.blobs.opening import open_blobs
from runyard.components import processor, server
from runyard.components.probing import NotReady
from runyard.components.results import ResultsSetup, keys_of
from runyard.components.server import ServerSocket
from runyard.db import migrate
from runyard.db.pooled import open_pool
from runyard.dispatch.deps import Deps
from runyard.dispatch.machine.table import Deadlines
from runyard.dispatch.pools import PLATFORMS
from runyard.dispatch.settings import Limit, Settings
from runyard.embedded.up.context import Context
from runyard.embedded.up.faults import with_faults
from runyard.embedded.up.restarts import RestartReader
from runyard.embedded.up.roles.access import access_settings, tls_context
from runyard.kube.client import Kube
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.meter import Meter
from runyard.xcresult.processor.deps import Deps as ProcessorDeps
from runyard.xcresult.settings import Settings as Processing

# One team's machine and those that join it: the hosts are the limit, until `runyard tenant set` sets another.
_UNLIMITED = 1_000_000
LIMITS = tuple(
    Limit(platform=platform, vcpus=_UNLIMITED, memory_gb=_UNLIMITED)
    for platform in PLATFORMS.values()
)


async def run(context: Context) -> None:
    """Serve until cancelled."""
    async with contextlib.AsyncExitStack() as stack:
        deps, migrated = await _deps(context, stack), asyncio.Event()
        results = ResultsSetup(
            blobs=open_blobs(Directory(path=context.boot.layout.blobs), clock=context.clock),
            keys=keys_of(context.secrets().seal),
        )
        sockets = tuple(
            ServerSocket(
                sock=sock,
                access=access_settings(context, address),
                tls=tls_context(context, address),
            )
            for address, sock in context.sockets()
        )

        async def prepare(_: NotReady) -> None:
            await asyncio.to_thread(migrate.apply, context.boot.database)
            migrated.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(_process(context, deps, results.blobs, migrated))
            await server.serve(
                deps,
                sockets,
                prepare=prepare,
                ready=lambda _: context.ready(),
                results=results,
                read_restarts=RestartReader(context.boot.layout.restarts),
            )


async def _process(context: Context, deps: Deps, blobs: Blobs, migrated: asyncio.Event) -> None:
    """Process test results, as soon as there are tables for them."""
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
        processing = ProcessorDeps(
            name=f"{context.boot.name}-processor",
            database=deps.database,
            results=results,
            blobs=blobs,
            clock=context.clock,
            rng=context.rng,
            meter=deps.meter,
            log=context.log(),
            settings=how,
            health=Health(context.clock, processor.CONDITIONS),
            freshness=Freshness(context.clock),
        )
        await processor.run(processing, ending=asyncio.Event())


async def _deps(context: Context, stack: contextlib.AsyncExitStack) -> Deps:
    boot = context.boot
    pool = open_pool(boot.database, clock=context.clock, rng=context.rng)
    kube, github = context.kube(), context.github()
    stack.push_async_callback(kube.close)
    stack.push_async_callback(github.close)
    return Deps(
        name=boot.name,
        kube=Kube(with_faults(kube, boot), token=context.token(boot.name)),
        github=github,
        auth=context.auth(),
        database=await stack.enter_async_context(pool),
        clock=context.clock,
        rng=context.rng,
        meter=Meter(),
        log=context.log(),
        settings=settings(context),
        health=Health(context.clock, conditions.ALL),
        freshness=Freshness(context.clock),
    )


def settings(context: Context) -> Settings:
    """The server's, at this machine's pace."""
    pace, github = context.boot.pace, context.boot.github
    return Settings(
        webhook_secrets=context.webhook_secrets(),
        seal_key=context.secrets().seal,
        default_limits=LIMITS,
        intake="pull" if github is not None and github.pull else "webhook",
        runner_group=1 if github is None else github.runner_group,
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
