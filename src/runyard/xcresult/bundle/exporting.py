"""Exports the attachments of a result as files, with the manifest of Apple's `xcresulttool export attachments`.

Payloads are streamed from the store to files, so memory does not grow with them. A file is named by the attachment's
uuid and an extension; no other untrusted text becomes part of a path. The readable name is in the manifest.

Invariants:
- Nothing is written outside of the directory, and no link in it is followed: a file is created under a new name and
  then moved into place. A payload that ends early leaves no file.
- Each attachment has its own file, as with Apple's tool; those with the same payload are links to one file, so its
  bytes are written once. Exporting again gives the same names and files.
- Attachments that cannot be exported are listed and do not affect the others.
- The extension is that of the readable name. Some versions of Xcode name HEIC pictures PNG; an option names them
  `.heic` according to their first bytes.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from runyard.files import write_whole
from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.choosing import Chosen
from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.model import Attachment, Case, Device, Result, Run
from runyard.xcresult.reader.objects import ObjectProblem, Objects

MANIFEST = "manifest.json"
_SNIFFED = 16
READABLE = 0o644
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


class Exported(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One attachment, with the field names of Apple's manifest."""

    exported_file_name: str
    suggested_human_readable_name: str
    is_associated_with_failure: bool
    timestamp: float | msgspec.UnsetType = msgspec.UNSET
    configuration_name: str
    device_name: str
    device_id: str
    repetition_number: int | msgspec.UnsetType = msgspec.UNSET
    arguments: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class CaseAttachments(msgspec.Struct, frozen=True, kw_only=True):
    """The attachments of one test."""

    identifier: str = msgspec.field(name="testIdentifier")
    identifier_url: str = msgspec.field(name="testIdentifierURL")
    attachments: tuple[Exported, ...]


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment that could not be exported, and the reason."""

    test: str
    name: str
    why: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The exported attachments. `tests` has the structure of Apple's manifest."""

    tests: tuple[CaseAttachments, ...]
    files: int
    size: int
    """Bytes that were written; a payload that several attachments share counts once."""
    missed: tuple[Missed, ...] = ()

    def encoded(self) -> bytes:
        """The content of manifest.json."""
        return msgspec.json.format(msgspec.json.encode(self.tests), indent=2) + b"\n"


def export(
    objects: Objects,
    result: Result,
    to: Path,
    *,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    chosen: Chosen = Chosen(),  # noqa: B008  (frozen)
    progress: Callable[[int], None] | None = None,
) -> Manifest:
    """Write the attachments and manifest.json into `to`, which is created if it does not exist."""
    to.mkdir(parents=True, exist_ok=True)
    exporting = _Exporting(objects, to, limits=limits, chosen=chosen, progress=progress)
    tests = tuple(
        CaseAttachments(
            identifier=case.identifier, identifier_url=case.identifier_url, attachments=found
        )
        for case in result.cases
        if chosen.case(case) and (found := tuple(exporting.of_case(case, result)))
    )
    manifest = Manifest(
        tests=tests, files=exporting.files, size=exporting.bytes, missed=tuple(exporting.missed)
    )
    write_whole(to / MANIFEST, manifest.encoded(), mode=READABLE)
    return manifest


class _Exporting:
    """The state of one export: names that are taken, payloads that are written, bytes so far."""

    def __init__(
        self,
        objects: Objects,
        to: Path,
        *,
        limits: Limits,
        chosen: Chosen,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._objects = objects
        self._to = to
        self._limits = limits
        self._chosen = chosen
        self._progress = progress
        self._written: dict[str, tuple[str, bytes]] = {}
        self._taken: dict[str, int] = {}
        self._lost: dict[str, str] = {}
        self.files = 0
        self.bytes = 0
        self.missed: list[Missed] = []

    def of_case(self, case: Case, result: Result) -> Iterator[Exported]:
        for run in case.runs:
            for attachment in run.attachments:
                if not self._chosen.attachment(attachment):
                    continue
                name = self._file(attachment, case)
                if name:
                    yield _exported(name, attachment, run, result)

    def _file(self, attachment: Attachment, case: Case) -> str:
        """Export the attachment and return its file name; empty if its payload cannot be read."""
        try:
            if not attachment.payload_id:
                raise ObjectProblem("", "its payload was not kept")
            if attachment.payload_id in self._lost:  # a damaged payload is read once
                raise ObjectProblem(attachment.payload_id, self._lost[attachment.payload_id])
            known = self._written.get(attachment.payload_id)
            name = self._new(attachment) if known is None else self._link(attachment, *known)
        except ObjectProblem as problem:
            self._lost[attachment.payload_id] = str(problem)
            missed = Missed(test=case.identifier, name=attachment.filename, why=str(problem))
            self.missed.append(missed)
            return ""
        self.files += 1
        return name

    def _new(self, attachment: Attachment) -> str:
        pieces = self._objects.stream(attachment.payload_id)
        first = next(pieces, b"")
        name = self._free(self._name(attachment, first))
        self._write(name, itertools.chain((first,), pieces))
        self._written[attachment.payload_id] = (name, first[:_SNIFFED])
        return name

    def _link(self, attachment: Attachment, known: str, first: bytes) -> str:
        """Link a payload that is already exported under a second name; copy it where links are not possible."""
        name = self._free(self._name(attachment, first))
        draft = self._draft(name)
        try:
            try:
                draft.hardlink_to(self._to / known)
            except OSError:
                self._write(name, self._objects.stream(attachment.payload_id))
                return name
            draft.replace(self._to / name)
        finally:
            # replace() keeps the draft if both names already link to the same file
            draft.unlink(missing_ok=True)
        return name

    def _name(self, attachment: Attachment, first: bytes) -> str:
        return file_name(attachment, first if self._chosen.true_extensions else b"")

    def _draft(self, name: str) -> Path:
        draft = self._to / f".{name}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        return draft

    def _free(self, name: str) -> str:
        """Return the name or an unused variant; on a Mac, names that differ only by case are the same file."""
        number = self._taken.get(name.lower(), 0) + 1
        self._taken[name.lower()] = number
        stem, dot, extension = name.partition(".")
        return name if number == 1 else f"{stem}-{number}{dot}{extension}"

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        draft = self._draft(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        size = 0
        try:
            with os.fdopen(os.open(draft, flags, READABLE), "wb") as file:
                for piece in pieces:
                    size = self._put(file, piece, size)
            draft.replace(self._to / name)
        finally:
            draft.unlink(missing_ok=True)  # also on an interrupt: an incomplete file must not stay

    def _put(self, file: BinaryIO, piece: bytes, size: int) -> int:
        size += len(piece)
        self.bytes += len(piece)
        if size > self._limits.entry_bytes:
            raise TooLarge(
                f"an attachment is larger than {self._limits.entry_bytes} bytes (entry_bytes)"
            )
        if self.bytes > self._limits.total_bytes:
            raise TooLarge(
                f"the attachments are larger than {self._limits.total_bytes} bytes (total_bytes)"
            )
        file.write(piece)
        if self._progress is not None:
            self._progress(len(piece))
        return size


def file_name(attachment: Attachment, beginning: bytes = b"") -> str:
    """Build a name of letters, digits, dashes and one dot; it is always the same for the same attachment.

    `beginning` has the first bytes of the payload, which determine the extension.
    """
    extension = _extension(attachment, beginning)
    uuid = attachment.uuid
    if not _UUID.fullmatch(uuid):
        found = _UUID.findall(attachment.filename)
        uuid = found[-1] if found else _derived_uuid(attachment)
    return f"{uuid.upper()}.{extension}" if extension else uuid.upper()


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


def _exported(name: str, attachment: Attachment, run: Run, result: Result) -> Exported:
    device = result.actions[run.action].device if run.action < len(result.actions) else Device()
    return Exported(
        exported_file_name=name,
        suggested_human_readable_name=attachment.filename or attachment.name,
        is_associated_with_failure=attachment.on_failure,
        timestamp=msgspec.UNSET if attachment.timestamp is None else attachment.timestamp,
        configuration_name=run.configuration,
        device_name=device.name,
        device_id=device.identifier,
        repetition_number=run.repetition.iteration if run.repetition is not None else msgspec.UNSET,
        arguments=tuple(each.value for each in run.arguments) if run.arguments else msgspec.UNSET,
    )
