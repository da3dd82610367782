"""Remembers which digest each image reference means on this host.

A reference with a digest means itself. A tag is looked up in its registry, and again when the answer is older than
a minute; while the registry does not answer, an image that the tag meant before and that is still here is used: by an
earlier answer, by the record of an earlier agent, or by a pull of the tag with the host's own tools. Where there is no
such image, the tag is pulled with those tools, if the driver has any: they may have a way to the registry that the
agent has not (a proxy, a mirror, the Keychain).
"""

import msgspec

from runyard.node.deadlines import within
from runyard.node.deps import Deps
from runyard.vm.contract import Busy, DriverFailed, ResolvedImage, Unreachable, VmError


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
        """Look the reference up; raises `VmError`. If only a pull tells what it means, it stays itself and unknown."""
        known = self.current(image)
        if known is not None:
            return known
        deps = self._deps
        try:
            found = await self._ask(image)
            if not found.pinned:
                self._pins.pop(image, None)
                return image
            pinned = found.reference
        except Unreachable as error:
            pinned = await self._known(image, held)
            if not pinned and deps.driver.pulls_tags and not isinstance(error, Busy):
                deps.log.warning(
                    "the registry does not answer the agent; the driver's own tools are asked for the tag",
                    image=image,
                    error=str(error),
                )
                self._pins.pop(image, None)
                return image
            if not pinned:
                raise
            deps.log.warning(
                "the registry does not answer; the image that the tag meant before is used",
                image=image,
                pinned=pinned,
                error=str(error),
            )
        self._pins[image] = _Pin(pinned, deps.clock.monotonic())
        return pinned

    async def learn(self, image: str) -> str:
        """What an image means that was just pulled without its digest; raises `VmError`."""
        pinned = await self._deps.driver.remembered(image)
        if not pinned:
            raise DriverFailed(f"{image} was pulled, but the driver does not say which image it is")
        self._pins[image] = _Pin(pinned, self._deps.clock.monotonic())
        return pinned

    async def _ask(self, image: str) -> ResolvedImage:
        """What the registry says; `Unreachable` if it says nothing in time."""
        seconds = self._deps.settings.deadlines.resolve

        def silent() -> VmError:
            return Unreachable(
                f"{image}: its registry did not say within {seconds:g} s what it means; it is asked again later"
            )

        async with within(self._deps.clock, seconds, silent):
            return await self._deps.driver.resolve(image)

    async def _known(self, image: str, held: tuple[str, ...]) -> str:
        """What the reference meant before, if that image is on this host; empty if it is not known.

        An earlier answer of the registry goes before what the host remembers of a pull by its tag.
        """
        before = self._pins.get(image)
        if before is not None and before.reference in held:
            return before.reference
        remembered = await self._deps.driver.remembered(image)
        return remembered if remembered in held else ""
