"""Serves the embedded API as `runyard up` does: TLS, roles, and a journal on disk.

python -m benches.kube.embedded_server FOLDER        prints its address; ends when its input closes
"""

import asyncio
import random
import sys
from pathlib import Path

from runyard.clock import RealClock
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.settings import Settings
from runyard.embedded.kube.storage.journal import Journal
from runyard.http.server import listen
from runyard.http.tls import issue_server, make_authority, server_context, write_pair

ADMIN = "the-administrator-of-this-bench"


async def main(folder: Path) -> None:
    clock = RealClock()
    authority = make_authority(now=clock.now())
    files = write_pair(folder, "server", issue_server(authority, ["127.0.0.1"], now=clock.now()))
    write_pair(folder, "ca", authority)
    journal = Journal(folder / "kube.db")
    core = KubeCore(
        clock=clock,
        rng=random.Random(),
        settings=Settings(tick=1.0),
        journal=journal,
        security=Security(rbac=True),
    )
    core.guard(authenticator((ADMIN,), core.tokens))
    listening = await listen(core.handle, tls=server_context(files))
    ticking = asyncio.create_task(core.run_controllers())
    print(listening.url, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    ticking.cancel()
    core.close_watches()
    await listening.close()
    journal.close()
    assert not core.failures, core.failures


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
