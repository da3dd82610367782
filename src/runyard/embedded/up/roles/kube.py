"""Runs the embedded Kubernetes API as a process of `runyard up`, with RBAC and the machine's certificate authority."""

import asyncio

from runyard.embedded.kube.access.login import authenticator, only_known
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.nodeproxy.passing import HttpNodes
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.storage.journal import Journal, JournalError
from runyard.embedded.up.context import Context
from runyard.embedded.up.layout import BadDirectory
from runyard.embedded.up.trust import serving, signer, to_nodes
from runyard.http.server import listen

# A host that is cut off for less keeps its jobs: a Pod that was evicted is stopped when its host returns. A stock
# cluster waits five minutes.
HOST_AWAY = 1800.0


async def run(context: Context) -> None:
    """Serve the API until cancelled."""
    boot, secrets = context.boot, context.secrets()
    try:
        journal = Journal(boot.layout.kube)
        core = KubeCore(
            clock=context.clock,
            rng=context.rng,
            settings=Settings(tick=1.0, pod_eviction=HOST_AWAY),
            journal=journal,
            security=Security(rbac=True, authority=signer(boot.layout, now=context.clock.now())),
            proxy=HttpNodes(to_nodes(boot.layout, now=context.clock.now())),
        )
    except JournalError as error:
        raise BadDirectory(str(error)) from error
    login = authenticator((secrets.admin_token,), core.tokens, certificates=True)
    core.guard(login)
    # kubectl sends no token over plain HTTP, so the API speaks TLS on loopback too.
    tls = serving(boot.layout, now=context.clock.now(), clients=True)
    listening = await listen(core.handle, sock=context.socket(), tls=tls, admit=only_known(login))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(core.run_controllers())
            context.ready()
    finally:
        core.close_watches()
        await listening.close()
        journal.close()
