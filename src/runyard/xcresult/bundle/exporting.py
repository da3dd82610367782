"""Exports the attachments of a result as files, with the manifest of Apple's `xcresulttool export attachments`.

Payloads are streamed from the store to files, so memory does not grow with them. A file is named after its test
(`attachment_names.py` in `reader`, which makes the words of the bundle safe); its uuid and the name that the test gave
it are in the manifest.

Invariants:
- Nothing is written outside of the directory, and no link in it is followed: a file is created under a new name and
  then moved into place. A payload that ends early leaves no file.
- Each attachment has its own file, as with Apple's tool; those with the same payload are links to one file, so its
  bytes are written once. Exporting again gives the same names and files.
- Attachments that cannot be exported are listed and do not affect the others.
- The extension is that of the readable name. Some versions of Xcode name HEIC pictures PNG; an option names them
  `.heic` according to their first bytes.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from runyard.files import write_whole
from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.choosing import Chosen
from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.attachment_names import (
    Names,
    attachment_names,
    case_key,
    uuid_of,
    with_extension,
)
from runyard.xcresult.reader.model import Attachment, Case, Device, Result, Run
from runyard.xcresult.reader.objects import ObjectProblem, Objects

MANIFEST = "manifest.json"
_SNIFFED = 16
READABLE = 0o644


class Exported(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One attachment, with the field names of Apple's manifest, and its uuid."""

    exported_file_name: str
    uuid: str
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
    names = attachment_names(result.cases)
    exporting = _Exporting(objects, to, names, limits=limits, chosen=chosen, progress=progress)
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
    """The state of one export: payloads that are written, bytes so far."""

    def __init__(
        self,
        objects: Objects,
        to: Path,
        names: Names,
        *,
        limits: Limits,
        chosen: Chosen,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._objects = objects
        self._to = to
        self._names = names
        self._limits = limits
        self._chosen = chosen
        self._progress = progress
        self._written: dict[str, tuple[str, bytes]] = {}
        self._lost: dict[str, str] = {}
        self.files = 0
        self.bytes = 0
        self.missed: list[Missed] = []

    def of_case(self, case: Case, result: Result) -> Iterator[Exported]:
        for run, names in zip(case.runs, self._names.get(case_key(case), ()), strict=False):
            for attachment, stem in zip(run.attachments, names, strict=True):
                if not self._chosen.attachment(attachment):
                    continue
                name = self._file(attachment, stem, case)
                if name:
                    yield _exported(name, attachment, run, result)

    def _file(self, attachment: Attachment, stem: str, case: Case) -> str:
        """Export the attachment and return its file name; empty if its payload cannot be read."""
        try:
            if not attachment.payload_id:
                raise ObjectProblem("", "its payload was not kept")
            if attachment.payload_id in self._lost:  # a damaged payload is read once
                raise ObjectProblem(attachment.payload_id, self._lost[attachment.payload_id])
            known = self._written.get(attachment.payload_id)
            name = (
                self._new(attachment, stem)
                if known is None
                else self._link(attachment, stem, *known)
            )
        except ObjectProblem as problem:
            self._lost[attachment.payload_id] = str(problem)
            missed = Missed(test=case.identifier, name=attachment.filename, why=str(problem))
            self.missed.append(missed)
            return ""
        self.files += 1
        return name

    def _new(self, attachment: Attachment, stem: str) -> str:
        pieces = self._objects.stream(attachment.payload_id)
        first = next(pieces, b"")
        name = self._name(attachment, stem, first)
        self._write(name, itertools.chain((first,), pieces))
        self._written[attachment.payload_id] = (name, first[:_SNIFFED])
        return name

    def _link(self, attachment: Attachment, stem: str, known: str, first: bytes) -> str:
        """Link a payload that is already exported under a second name; copy it where links are not possible."""
        name = self._name(attachment, stem, first)
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

    def _name(self, attachment: Attachment, stem: str, first: bytes) -> str:
        return with_extension(stem, attachment, first if self._chosen.true_extensions else b"")

    def _draft(self, name: str) -> Path:
        draft = self._to / f".{name}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        return draft

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


def _exported(name: str, attachment: Attachment, run: Run, result: Result) -> Exported:
    device = result.actions[run.action].device if run.action < len(result.actions) else Device()
    return Exported(
        exported_file_name=name,
        uuid=uuid_of(attachment),
        suggested_human_readable_name=attachment.filename or attachment.name,
        is_associated_with_failure=attachment.on_failure,
        timestamp=msgspec.UNSET if attachment.timestamp is None else attachment.timestamp,
        configuration_name=run.configuration,
        device_name=device.name,
        device_id=device.identifier,
        repetition_number=run.repetition.iteration if run.repetition is not None else msgspec.UNSET,
        arguments=tuple(each.value for each in run.arguments) if run.arguments else msgspec.UNSET,
    )
