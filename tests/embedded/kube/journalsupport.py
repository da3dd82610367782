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
    Harness,
    node,
    pod,
    pool,
)

from runyard.embedded.kube.catalogue import Catalogue
from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.storage.journal import Journal
from runyard.sim.loop import run_virtual

Scenario = Callable[[Harness], Awaitable[Any]]


class DataDir:
    """One data directory for cores that run one after the other."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kube.db"

    @contextmanager
    def harness(self, **settings: Any) -> Iterator[Harness]:
        journal = Journal(self.path)
        try:
            yield Harness(journal=journal, **settings)
        finally:
            journal.close()


def run_restarts(data_dir: DataDir, *scenarios: Scenario, **settings: Any) -> None:
    """Runs each scenario on a new core that loads what the ones before it stored."""

    async def main() -> None:
        for number, scenario in enumerate(scenarios):
            with data_dir.harness(seed=number, **settings) as harness:
                await scenario(harness)
                assert not harness.core.failures

    run_virtual(main())


def state(core: KubeCore) -> dict[str, Any]:
    kinds = [*(item.key for item in Catalogue().stored), "runnerpools"]
    return {kind: core.objects(kind) for kind in kinds} | {"version": core.version}


async def populated(harness: Harness) -> None:
    await harness.ok("POST", ACCOUNTS, {"metadata": {"name": "runner"}})
    await harness.ok("POST", NODES, node())
    for name in ("a", "b", "c"):
        await harness.ok("POST", PODS, pod(name, serviceAccountName="runner"))
    await harness.ok("POST", NODE_LEASES, {"metadata": {"name": "n1"}, "spec": {"renewTime": None}})
    await harness.apply(f"{POOLS}/mac", pool(), "chart")
    await harness.merge(f"{POOLS}/mac", {"metadata": {"finalizers": ["example.com/x"]}})
    await harness.ok("DELETE", f"{POOLS}/mac")
    await harness.ok("DELETE", f"{PODS}/a")


def restored(path: Path) -> dict[str, Any]:
    journal = Journal(path)
    try:
        return state(Harness(journal=journal, namespaces=()).core)
    finally:
        journal.close()
