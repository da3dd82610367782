"""Starts the node agent of one host.

`runyard agent`, `runyard up`, the simulator and the tests start it here, with a driver of their choice. The virtual
machines do not end with the agent: the next one finds them by its records.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from runyard.components.probing import ProbeSocket, served
from runyard.components.reporting import check_denied, with_reports
from runyard.node.agent import Agent
from runyard.node.deps import Deps


async def run(deps: Deps) -> None:
    """Serve one host until cancelled."""
    await Agent(_reporting(deps)).run()


async def serve(
    given: Deps, sockets: Sequence[ProbeSocket], *, ready: Callable[[tuple[str, ...]], None]
) -> None:
    """Run with probes until cancelled; `ready` gets the URLs of the probes once they answer."""
    deps = _reporting(given)
    async with served("runyard agent", deps, sockets) as urls, asyncio.TaskGroup() as group:
        group.create_task(Agent(deps).run())
        group.create_task(check_denied(deps.kube, deps))
        ready(urls)


def _reporting(deps: Deps) -> Deps:
    kube = with_reports(deps.kube, deps.health, meter=deps.meter, log=deps.log)
    return msgspec.structs.replace(deps, kube=kube)
