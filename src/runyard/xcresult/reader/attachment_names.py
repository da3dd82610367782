"""Names the files of attachments so that people recognise them: `CartTests_testLogin_1.png`.

A name is the suites, the function and a number, then the extension. The number counts the attachments of all tests with
that name in the bundle's order, those that are not exported included, so a name does not depend on what is selected,
and a bundle always has the same names.

Invariants, because the words come from an untrusted bundle:
- A name has letters, digits, marks on letters, underscores and one dot before the extension, in every script. It
  begins with a letter or a digit and is not a name that Windows reserves. So it is one component of a path, and it
  needs no quotes in a shell, a URL or Markdown.
- A name has at most 130 bytes: an encrypted directory on Linux allows 143, and a draft adds the id of a process.
- Two attachments have different names, also on file systems that ignore case or the form of accents.
"""

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Iterable

from runyard.xcresult.reader.model import Attachment, Case, Run

Names = dict[tuple[str, str, tuple[str, ...], str], tuple[tuple[str, ...], ...]]
"""The names without extensions of the attachments of each run of a case, by the key of the case."""
_SUITES, _FUNCTION = 40, 64
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_EXTENSION = re.compile(r"[A-Za-z0-9]{1,16}")
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_TYPES = {
    "public.plain-text": "txt",
    "public.utf8-plain-text": "txt",
    "public.text": "txt",
    "public.png": "png",
    "public.jpeg": "jpeg",
    "public.heic": "heic",
    "public.json": "json",
    "public.xml": "xml",
    "public.html": "html",
    "public.mpeg-4": "mp4",
    "public.zip-archive": "zip",
    "com.adobe.pdf": "pdf",
    "com.apple.property-list": "plist",
    "com.compuserve.gif": "gif",
}


def case_key(case: Case) -> tuple[str, str, tuple[str, ...], str]:
    """What distinguishes a case from all others of a result."""
    return case.plan, case.target, case.suites, case.identifier


def attachment_names(cases: Iterable[Case]) -> Names:
    """Name the attachments of all cases; a case without attachments is left out."""
    numbers: dict[str, itertools.count[int]] = {}
    found: Names = {}
    for case in cases:
        if any(run.attachments for run in case.runs):
            stem = _stem(case)
            number = numbers.setdefault(_folded(stem), itertools.count(1))
            found[case_key(case)] = tuple(_of_run(run, stem, number) for run in case.runs)
    return found


def with_extension(name: str, attachment: Attachment, beginning: bytes = b"") -> str:
    """Add the extension. `beginning` has the first bytes of the payload, if they determine it."""
    extension = _extension(attachment, beginning)
    return f"{name}.{extension}" if extension else name


def uuid_of(attachment: Attachment) -> str:
    """The id of an attachment: its own, or that in its file name, or one that is always derived alike."""
    if _UUID.fullmatch(attachment.uuid):
        return attachment.uuid.upper()
    found = _UUID.findall(attachment.filename)
    return (found[-1] if found else _derived_uuid(attachment)).upper()


def _of_run(run: Run, stem: str, number: "itertools.count[int]") -> tuple[str, ...]:
    return tuple(f"{stem}_{next(number)}" for _ in run.attachments)


def _stem(case: Case) -> str:
    parts = (_plain("_".join(case.suites), _SUITES), _plain(case.function or case.name, _FUNCTION))
    return "_".join(part for part in parts if part) or "test"


def _plain(text: str, limit: int) -> str:
    """Keep letters, digits and marks on letters; everything between them is one underscore."""
    kept: list[str] = []
    for char in unicodedata.normalize("NFKC", text[: limit * 4]):
        kind = unicodedata.category(char)[0]
        follows = bool(kept) and kept[-1] != "_"
        if kind in "LN" or (kind == "M" and follows):
            kept.append(char)
        elif follows:
            kept.append("_")
    return "".join(kept).encode()[:limit].decode(errors="ignore").rstrip("_")


def _folded(stem: str) -> str:
    """The same for all names that some file system does not distinguish."""
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", stem).casefold())


def _derived_uuid(attachment: Attachment) -> str:
    identity = f"{attachment.payload_id}\0{attachment.filename}".encode("utf-8", "replace")
    digest = hashlib.sha256(identity).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def _extension(attachment: Attachment, beginning: bytes) -> str:
    if beginning[4:8] == b"ftyp" and beginning[8:12] in _HEIC:
        return "heic"
    dotted = attachment.filename.rpartition(".")
    if dotted[1] and _EXTENSION.fullmatch(dotted[2]):
        return dotted[2].lower()
    return _TYPES.get(attachment.uniform_type, "")
