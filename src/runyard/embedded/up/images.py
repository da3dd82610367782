"""Builds the images that a machine's hosts pull: the guest's scripts, and a runner program.

With the practice GitHub the runner is the practice one. For a real GitHub, `runner` is the directory of an unpacked
actions runner. The two practice images differ only in their name, which is enough to test a roll.
"""

from importlib import resources
from pathlib import Path

from runyard.embedded.up.layout import Layout
from runyard.embedded.up.practice import IMAGES
from runyard.vm.guest.image import build_image
from runyard.vm.process.layout import quoted


def build(layout: Layout, runner: Path | None = None) -> None:
    """Rebuilds the images: the scripts of this version may differ from those of the last."""
    with resources.as_file(resources.files("runyard.embedded.github") / "runner") as practice:
        for image in IMAGES:
            build_image(layout.images / quoted(image), runner=runner or practice)
