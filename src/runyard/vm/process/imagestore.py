"""Stores the images of one host: directories that are copied from a source, atomically.

An image that was rebuilt under the same reference is outdated: it is no longer listed and is pulled again. VMs have
their own copies, so an image may be replaced or removed at any moment.
"""

from pathlib import Path

from runyard.vm.contract import ImageMissing
from runyard.vm.guest.image import image_id
from runyard.vm.process.folders import (
    NewDirectory,
    copy,
    map_os_errors,
    remove_whole,
    sweep,
    visible,
)
from runyard.vm.process.layout import quoted, unquoted


class ImageStore:
    """The images under `home`, "pulled" from `source`."""

    def __init__(self, home: Path, source: Path) -> None:
        self._home = home
        self._source = source

    async def open(self) -> None:
        """Creates the folder; removes what is half copied or half removed."""
        self._home.mkdir(mode=0o700, exist_ok=True)
        await sweep(self._home)

    def names(self) -> tuple[str, ...]:
        """The pulled images that are still current at the source."""
        found = visible(self._home)
        return tuple(unquoted(path.name) for path in found if not self._outdated(path))

    def find(self, image: str) -> Path:
        """The directory of an image; raises `ImageMissing`."""
        path = self._home / quoted(image)
        if not path.is_dir():
            raise ImageMissing(f"{image} has not been pulled")
        return path

    async def pull(self, image: str) -> None:
        """Copies it from the source; it appears when it is complete."""
        target = self._home / quoted(image)
        source = self._source / quoted(image)
        if target.is_dir() and not self._outdated(target):
            return
        if not (source / "boot.sh").is_file():
            raise ImageMissing(f"{self._source} holds no image {image} with a boot.sh")
        with map_os_errors():
            async with NewDirectory(target) as fresh:
                await copy(source, fresh.path)
                await remove_whole(target)  # an outdated one
                fresh.publish()

    async def remove(self, image: str) -> None:
        """Removes its directory. Absent is success."""
        await remove_whole(self._home / quoted(image))

    def _outdated(self, held: Path) -> bool:
        """Whether the source has another image under this name by now."""
        offered = image_id(self._source / held.name)
        return bool(offered) and offered != image_id(held)
