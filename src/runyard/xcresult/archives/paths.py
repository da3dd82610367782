"""Turns names inside an archive into path components, or refuses them.

Names are untrusted. A name that would leave the directory of the extraction refuses the whole archive, whether the
entry is needed or not: such an archive is malicious. `needed` selects the others: only a bundle's property list, its
store, its database and the list of quarantined tests are read, so nothing else is written, in particular no AppleDouble
files (`._name`) and no `__MACOSX`.
"""

import re

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.errors import BundleInvalid, TooLarge

SUFFIX = ".xcresult"
NEEDED = frozenset({"Info.plist", "database.sqlite3", "quarantined_tests.json"})
NAME_BYTES = 255  # limit of common file systems

_DRIVE = re.compile(r"^[A-Za-z]:")

Parts = tuple[str, ...]


def shown(name: str) -> str:
    """Make an untrusted name safe to print in one line of an error."""
    text = name if len(name) <= 120 else name[:117] + "..."
    return ascii(text)


def parts_of(name: str, limits: Limits) -> Parts:
    """Return the components of an entry's name; empty for the archive's root directory."""
    if len(name) > limits.path_bytes:
        raise TooLarge(
            f"a name in the archive is longer than {limits.path_bytes} bytes (path_bytes)"
        )
    if name.startswith("/") or _DRIVE.match(name):
        raise BundleInvalid(f"the archive holds an absolute path: {shown(name)}")
    if "\\" in name or "\0" in name:
        raise BundleInvalid(f"the archive holds a name with a backslash or NUL: {shown(name)}")
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    if ".." in parts:
        raise BundleInvalid(f"the archive holds a path that leaves it: {shown(name)}")
    if len(parts) > limits.path_depth:
        raise TooLarge(
            f"a path in the archive is deeper than {limits.path_depth} directories (path_depth)"
        )
    if any(len(part.encode("utf-8", "replace")) > NAME_BYTES for part in parts):
        raise BundleInvalid(f"the archive holds a name that no file may have: {shown(name)}")
    return parts


def text_of(name: bytes) -> str:
    """Decode a name; invalid UTF-8 is replaced, because only the position of the name matters."""
    return name.decode("utf-8", "replace")


def needed(parts: Parts) -> bool:
    """Whether the reader uses this file."""
    if not parts or parts[0] == "__MACOSX":
        return False
    name = parts[-1]
    if len(parts) > 1 and parts[-2] == "Data":
        return name.startswith(("data.", "refs."))
    return name in NEEDED or is_old_summary(name)


def is_old_summary(name: str) -> bool:
    """Whether the file marks a bundle of Xcode 10 or older: it is extracted so that the error can say so."""
    return name.endswith("TestSummaries.plist") and not name.startswith("._")


def bundle_of(parts: Parts) -> Parts | None:
    """The path of the bundle directory that contains these components, judged by its name."""
    if parts and parts[0] == "__MACOSX":
        return None
    for count, part in enumerate(parts, start=1):
        if is_bundle_name(part):
            return parts[:count]
    return None


def is_bundle_name(name: str) -> bool:
    """Whether a directory's name is a bundle's. `._X.xcresult` is its AppleDouble file."""
    return name.endswith(SUFFIX) and not name.startswith("._")
