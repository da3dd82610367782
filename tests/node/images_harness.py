"""A harness for the image store: a simulated driver that records what was asked of it."""

import asyncio
import random
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response
from runyard.kube.client import Kube
from runyard.node.deps import Deps
from runyard.node.images import ImageStore
from runyard.node.records import Records
from runyard.node.settings import Settings
from runyard.sim.clock import VirtualClock
from runyard.sim.driver import Host, SimDriver
from runyard.sim.loop import run_virtual
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.vm.contract import (
    PullProgress,
    ignore_progress,
)

TAG, OLD, NEW = "registry/runner:1", "registry/runner@sha256:1", "registry/runner@sha256:2"


class CountingDriver(SimDriver):
    """Records which pulls and removals were begun."""

    def __init__(self, clock: VirtualClock, host: Host) -> None:
        super().__init__(clock, host=host)
        self.calls: list[str] = []
        self.memory: dict[str, str] = {}  # what tags meant when they were pulled by hand
        self.made: list[str] = []  # images from which something was made
        self.collections: list[tuple[frozenset[str], float]] = []

    async def remembered(self, image: str) -> str:
        return self.memory.get(image, "")

    async def collect(self, *, used: frozenset[str], idle: float) -> tuple[str, ...]:
        self.collections.append((used, idle))
        gone = tuple(image for image in self.made if image not in used)
        self.made = [image for image in self.made if image in used]
        return gone

    async def pull(
        self, image: str, *, progress: Callable[[PullProgress], None] = ignore_progress
    ) -> None:
        self.calls.append(f"pull {image}")
        await super().pull(image, progress=progress)

    async def remove_image(self, image: str) -> None:
        self.calls.append(f"remove {image}")
        await super().remove_image(image)


class ImagesHarness:
    """An image store with its driver, the images in use and the keys that it woke."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.clock = VirtualClock()
        host = Host(bandwidth=10.0, image_bytes=100.0, disk=250.0, vm_bytes=0.0)
        self.driver = CountingDriver(self.clock, host)
        self.used: list[str] = []
        self.woken: list[str] = []

        async def unavailable(request: Request) -> Response:
            return Response(status=500)

        self.deps = Deps(
            kube=Kube(Loopback(unavailable)),
            driver=self.driver,
            records=Records(directory, durable=False),
            clock=self.clock,
            rng=random.Random(1),
            meter=Meter(),
            log=get_logger("test"),
            settings=settings,
            health=Health(self.clock, conditions.ALL),
            freshness=Freshness(self.clock),
        )
        self.deps.records.images.load()
        self.store = self.reopened()

    def reopened(self) -> ImageStore:
        """A store as a new agent on this host has it."""
        return ImageStore(
            self.deps,
            in_use=lambda: frozenset(self.used),
            wake=self.woken.append,
            owned=self.deps.records.images,
        )


SETTINGS = Settings(node_name="n", images_every=1e9)


def run_images(
    scenario: Callable[[ImagesHarness], Coroutine[Any, Any, None]],
    directory: Path | None = None,
    settings: Settings = SETTINGS,
) -> None:
    async def main(folder: Path) -> None:
        harness = ImagesHarness(folder, settings)
        running = asyncio.get_running_loop().create_task(harness.store.run())
        await harness.clock.sleep(1)
        await scenario(harness)
        running.cancel()

    with tempfile.TemporaryDirectory() as name:
        run_virtual(main(directory or Path(name)))
