"""Runs cores one after the other on one data directory, for tests of the journal."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.embedded.kube.coresupport import (
    ACCOUNTS,
    NODE_LEASES,
    NODES,
    PODS,
    POOLS,
    World,
    node,
    pod,
    pool,
)

from runyard.embedded.kube.catalogue import Catalogue
from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.storage.journal import Journal
from runyard.sim.loop import run_virtual

Scene = Callable[[World], Awaitable[Any]]


class Home:
    """One data directory for cores that run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kube.db"

    @contextmanager
    def world(self, **settings: Any) -> Iterator[World]:
        journal = Journal(self.path)
        try:
            yield World(journal=journal, **settings)
        finally:
            journal.close()


def lives(home: Home, *scenes: Scene, **settings: Any) -> None:
    """Runs each scene on a new core that loads what the ones before it stored."""

    async def main() -> None:
        for number, scene in enumerate(scenes):
            with home.world(seed=number, **settings) as world:
                await scene(world)
                assert not world.core.failures

    run_virtual(main())


def state(core: KubeCore) -> dict[str, Any]:
    kinds = [*(item.key for item in Catalogue().stored), "runnerpools"]
    return {kind: core.objects(kind) for kind in kinds} | {"version": core.version}


async def populated(world: World) -> None:
    await world.ok("POST", ACCOUNTS, {"metadata": {"name": "runner"}})
    await world.ok("POST", NODES, node())
    for name in ("a", "b", "c"):
        await world.ok("POST", PODS, pod(name, serviceAccountName="runner"))
    await world.ok("POST", NODE_LEASES, {"metadata": {"name": "n1"}, "spec": {"renewTime": None}})
    await world.apply(f"{POOLS}/mac", pool(), "chart")
    await world.merge(f"{POOLS}/mac", {"metadata": {"finalizers": ["example.com/x"]}})
    await world.ok("DELETE", f"{POOLS}/mac")
    await world.ok("DELETE", f"{PODS}/a")


def restored(path: Path) -> dict[str, Any]:
    journal = Journal(path)
    try:
        return state(World(journal=journal, namespaces=()).core)
    finally:
        journal.close()
