"""Prepares the archive of the runner that this machine's hosts copy into VMs whose image has none."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from runyard.clock import Clock
from runyard.embedded.up import images
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.machine import Options
from runyard.vm.archives import FOLDER, provided


async def prepare(options: Options, *, clock: Clock, report: Callable[[str], None]) -> Path | None:
    """The practice runner's, or the one that was given for a real GitHub; None if none is needed. `BadArchive`."""
    layout = Layout(options.data)
    if options.driver != "tart":
        return None
    if options.github is None:
        await asyncio.to_thread(images.build_archive, layout)
        return images.practice_archive(layout)
    if options.archive is None:
        return None
    return await provided(options.archive, layout.root / FOLDER, clock=clock, report=report)
