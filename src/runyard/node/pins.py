"""Remembers which digest each image reference means on this host.

A reference with a digest means itself. A tag is looked up in its registry, and again when the answer is older than
a minute; while the registry does not answer, an image that the tag meant before and that is still here is used.
"""

import msgspec

from runyard.node.deps import Deps
from runyard.vm.contract import Unreachable


class _Pin(msgspec.Struct, frozen=True):
    reference: str  # with digest
    at: float  # monotonic


class Pins:
    """What references mean, as far as it is known here."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._pins: dict[str, _Pin] = {}

    def remember(self, image: str, pinned: str) -> None:
        """Use what an earlier agent found, but only while the registry does not answer."""
        if pinned and pinned != image:
            self._pins.setdefault(image, _Pin(pinned, -float("inf")))

    def current(self, image: str) -> str | None:
        """What the reference means; None if it has to be looked up."""
        pin = self._pins.get(image)
        if pin is None:
            return None
        age = self._deps.clock.monotonic() - pin.at
        if pin.reference == image or age <= self._deps.settings.pin_seconds:
            return pin.reference
        return None

    def latest(self, image: str) -> str:
        """What the reference meant when it was last looked up; itself if it never was."""
        pin = self._pins.get(image)
        return image if pin is None else pin.reference

    def all(self, image: str) -> tuple[str, ...]:
        """The reference and what it meant last."""
        return tuple(dict.fromkeys((image, self.latest(image))))

    async def resolve(self, image: str, *, held: tuple[str, ...]) -> str:
        """Look the reference up; raises `VmError`."""
        known = self.current(image)
        if known is not None:
            return known
        deps = self._deps
        try:
            async with deps.clock.timeout(deps.settings.deadlines.resolve):
                found = await deps.driver.resolve(image)
        except (Unreachable, TimeoutError) as error:
            before = self._pins.get(image)
            if before is None or before.reference not in held:
                raise
            deps.log.warning(
                "the registry does not answer; the image that the tag meant before is used",
                image=image,
                pinned=before.reference,
                error=str(error) or type(error).__name__,
            )
            self._pins[image] = _Pin(before.reference, deps.clock.monotonic())
            return before.reference
        self._pins[image] = _Pin(found.reference, deps.clock.monotonic())
        return found.reference
