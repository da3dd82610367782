"""Runs the listener for hosts of other machines, with `--listen`: a process of its own, which owns nothing.

It passes on what joined hosts and their runners need (`hosts.joining.front`), to the API and the servers on loopback. A
flood of connections, or a defect, costs this process and no other one; the supervisor restarts it. It exchanges join
tokens for credentials, so it uses the administrator's token for that, and for nothing that it passes on.
"""

import asyncio

from runyard.components.hosting import RUNNER_REQUESTS
from runyard.embedded.up.context import Context, transport
from runyard.embedded.up.hosts import FLEET
from runyard.embedded.up.trust import HostsCertificate, authority
from runyard.hosts.joining.front import Front, Offer, Upstreams
from runyard.http.connection_limits import ConnectionLimits
from runyard.http.server import listen
from runyard.http.tls import TlsError
from runyard.kube.client import Kube
from runyard.telemetry.loops import run_loop
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Loop

_CERTIFICATE_EVERY = 3600.0
_BODIES = 16 << 20  # bytes of all bodies that are held at once


async def run(context: Context) -> None:
    """Serve until cancelled."""
    boot, secrets = context.boot, context.secrets()
    ((address, sock),) = context.sockets()
    certificate = HostsCertificate(boot.layout, address, now=context.clock.now())
    practice = boot.practice
    api, server = context.kube(), transport(boot.server_url)
    github = transport(boot.github_url) if practice else None
    front = Front(
        Kube(api, agent="runyard-hosts", token=lambda: secrets.admin_token),
        Upstreams(api=api, server=server, github=github, practice=RUNNER_REQUESTS),
        authority=lambda: authority(boot.layout, now=context.clock.now()),
        offer=Offer(fleet=FLEET, practice_url=boot.github_url if practice else ""),
        clock=context.clock,
        log=context.log(),
    )

    async def renew() -> None:
        certificate.renew(now=context.clock.now())

    listening = await listen(
        front.handle, sock=sock, tls=certificate.context, bodies=_BODIES, limits=ConnectionLimits()
    )
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(
                run_loop(
                    Loop.LISTENER_CERTIFICATE,
                    renew,
                    clock=context.clock,
                    meter=Meter(),
                    log=context.log(),
                    every=_CERTIFICATE_EVERY,
                    deadline=30.0,
                    expected=(OSError, TlsError),
                )
            )
            context.ready()
    finally:
        await listening.close()
        for each in (api, server, *((github,) if github is not None else ())):
            await each.close()
