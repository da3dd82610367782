"""The names inside an archive: a stranger's text, turned into path components or refused.

Whatever would leave the directory that it is extracted to is refused with the whole archive, needed or
not: an archive with one such name was made to do harm. What is left is judged by `needed`: of a result
bundle only its property list, its store, its database and the list of quarantined tests are read, so
nothing else is written, in particular neither AppleDouble files (`._name`) nor `__MACOSX`.
"""

import re

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.errors import BundleInvalid, TooLarge

SUFFIX = ".xcresult"
NEEDED = frozenset({"Info.plist", "database.sqlite3", "quarantined_tests.json"})
NAME_BYTES = 255  # of every file system that we write to

_DRIVE = re.compile(r"^[A-Za-z]:")

Parts = tuple[str, ...]


def shown(name: str) -> str:
    """A stranger's name as it may stand in one line of an error."""
    text = name if len(name) <= 120 else name[:117] + "..."
    return ascii(text)


def parts_of(name: str, limits: Limits) -> Parts:
    """The components of an entry's name; empty for the archive's own root."""
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
    """A name's bytes as text: what is not UTF-8 is replaced, since only its place matters."""
    return name.decode("utf-8", "replace")


def needed(parts: Parts) -> bool:
    """Whether a file is one that the reader looks at."""
    if not parts or parts[0] == "__MACOSX":
        return False
    name = parts[-1]
    if len(parts) > 1 and parts[-2] == "Data":
        return name.startswith(("data.", "refs."))
    return name in NEEDED or is_old_summary(name)


def is_old_summary(name: str) -> bool:
    """A file that tells a bundle of Xcode 10 or older: it is kept so that the refusal can say so."""
    return name.endswith("TestSummaries.plist") and not name.startswith("._")


def bundle_of(parts: Parts) -> Parts | None:
    """The path of the bundle directory that these components lie in or name, if its name says so."""
    if parts and parts[0] == "__MACOSX":
        return None
    for count, part in enumerate(parts, start=1):
        if is_bundle_name(part):
            return parts[:count]
    return None


def is_bundle_name(name: str) -> bool:
    """Whether a directory's name is a bundle's. `._X.xcresult` is its AppleDouble file."""
    return name.endswith(SUFFIX) and not name.startswith("._")
