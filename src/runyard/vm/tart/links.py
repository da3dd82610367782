"""Reads what tags mean from tart's own folder: in its cache a tag is a link to the directory of a digest.

tart makes the link when a tag is pulled or pushed, so it tells what the tag meant then.
"""

from pathlib import Path

from runyard.vm.oci.reference import InvalidReference, is_digest, parse


def linked(home: Path, image: str) -> str:
    """The reference with digest that a tag meant; empty if tart has not pulled it by its tag."""
    try:
        tag = parse(image)
        digest = (home / "cache" / "OCIs" / tag.directory).readlink().name
    except (InvalidReference, OSError):
        return ""
    return str(tag.pinned(digest)) if is_digest(digest) else ""
