"""Records how far a host's image pulls have come, for the supervisor, which shows it.

The agents are processes of their own, and what they publish in a Pod's status is a sentence, written every few
seconds. The numbers are in a file of the host's directory instead, written whole at each step of a pull.

A tag is resolved before its image is pulled by digest, and the registry says then how large the image is. A driver
that knows only percentages (tart prints nothing else) gets the bytes from that.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from runyard.embedded.up.layout import Layout
from runyard.files import write_whole
from runyard.vm.contract import (
    PullProgress,
    ResolvedImage,
    VmDriver,
    VmError,
    ignore_progress,
)


class PullState(msgspec.Struct, frozen=True, kw_only=True):
    """One image of one host; `image` is what its Pods name."""

    image: str
    state: Literal["pulling", "pulled", "failed"]
    percent: float = 0.0
    bytes_done: int = 0  # 0 if unknown
    bytes_total: int = 0  # 0 if unknown
    error: str = ""


def recorded(driver: VmDriver, file: Path) -> VmDriver:
    """The same driver, which also records its pulls in a file; what an earlier process recorded is removed."""
    file.unlink(missing_ok=True)
    return cast("VmDriver", _Recorded(driver, file))


def pull_file(layout: Layout, host: str) -> Path:
    """Where a host's pulls are recorded."""
    return layout.host(host) / "pulls.json"


def read_pulls(layout: Layout, host: str) -> tuple[PullState, ...]:
    """What the host's agent has recorded; nothing if it has not pulled yet."""
    try:
        text = pull_file(layout, host).read_bytes()
        return msgspec.json.decode(text, type=tuple[PullState, ...])
    except (OSError, msgspec.DecodeError):
        return ()


class _Recorded:
    """Passes everything on to the driver."""

    def __init__(self, driver: VmDriver, file: Path) -> None:
        self._driver = driver
        self._file = file
        self._states: dict[str, PullState] = {}  # by what Pods name
        self._resolved: dict[str, tuple[str, int]] = {}  # by reference with digest: name, bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def resolve(self, image: str) -> ResolvedImage:
        try:
            found = await self._driver.resolve(image)
        except VmError as error:
            # Later on the image may be here already, and the answer of the registry is not needed.
            if all(name != image for name, _ in self._resolved.values()):
                self._record(PullState(image=image, state="failed", error=str(error)))
            raise
        self._resolved[found.reference] = (image, found.bytes)
        return found

    async def pull(
        self, image: str, *, progress: Callable[[PullProgress], None] = ignore_progress
    ) -> None:
        name, size = self._resolved.get(image, (image, 0))
        state = PullState(image=name, state="pulling", bytes_total=size)
        self._record(state)

        def advanced(found: PullProgress) -> None:
            total = found.bytes_total or size
            done = found.bytes_done or int(total * found.percent / 100)
            self._record(
                PullState(
                    image=name,
                    state="pulling",
                    percent=found.percent,
                    bytes_done=done,
                    bytes_total=total,
                )
            )
            progress(PullProgress(percent=found.percent, bytes_done=done, bytes_total=total))

        try:
            await self._driver.pull(image, progress=advanced)
        except VmError as error:
            self._record(PullState(image=name, state="failed", error=str(error)))
            raise
        self._record(PullState(image=name, state="pulled", percent=100.0, bytes_total=size))

    def _record(self, state: PullState) -> None:
        self._states[state.image] = state
        with contextlib.suppress(OSError):  # a full disk fails the pull itself, which says so
            write_whole(self._file, msgspec.json.encode([*self._states.values()]), sync=False)
