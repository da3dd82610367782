"""Builds what runners are made from on this machine's hosts.

Hosts that run processes pull images: the guest's scripts, and a runner program. VMs of tart have images of their own,
and get the practice runner as an archive. With the practice GitHub the runner is the practice one. For a real GitHub,
`runner` is the directory of an unpacked actions runner. The two practice images differ only in their name, which is
enough to test a roll.
"""

import gzip
import tarfile
from importlib import resources
from pathlib import Path

from runyard.embedded.up.layout import Layout
from runyard.embedded.up.practice import IMAGES
from runyard.vm.guest.image import build_image
from runyard.vm.registry import image_directory


def practice_archive(layout: Layout) -> Path:
    """The practice runner as an archive, for VMs."""
    return layout.images / "practice-runner.tar.gz"


def build_archive(layout: Layout) -> None:
    """Packs the practice runner of this version; always to the same bytes, because hosts keep it by its digest."""
    target = practice_archive(layout)
    draft = target.with_name(f".{target.name}")
    with (
        resources.as_file(resources.files("runyard.embedded.github") / "runner") as practice,
        draft.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        archive.add(practice, arcname=".", filter=_plain)
    draft.replace(target)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what differs between installations: users, times, rights, and Python's caches."""
    if "__pycache__" in member.name:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime, member.mode = 0, 0o755
    return member


def build(layout: Layout, runner: Path | None = None) -> None:
    """Rebuilds the images: the scripts of this version may differ from those of the last."""
    with resources.as_file(resources.files("runyard.embedded.github") / "runner") as practice:
        for image in IMAGES:
            build_image(image_directory(layout.images, image), runner=runner or practice)
