"""Verifies that the objects of a bundle match their ids.

An object's id is the hash of its references and its stored bytes, so a partial upload and a flipped bit are detected.
Every payload is also decompressed: a truncated frame may have a correct hash.

Each object is read once, in pieces; memory holds ids and no payload. Damaged objects are listed with their cause.
Missing referenced objects are listed separately: attachments and diagnostics are often removed on purpose, so that
alone does not count as damage.
"""

import hashlib
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.archives.meter import Check, no_check
from runyard.xcresult.archives.paths import shown
from runyard.xcresult.bundle.directory import DATA, Directory
from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.frames import FrameDamaged, pieces
from runyard.xcresult.reader.ids import is_id
from runyard.xcresult.reader.objects import ObjectProblem

Cause = Literal[
    "hash mismatch",
    "damaged frame",
    "damaged references",
    "missing data",
    "missing references",
    "no object id",
    "unreadable",
    "too large",
]


class Damaged(msgspec.Struct, frozen=True, kw_only=True):
    """One damaged object."""

    object_id: str
    cause: Cause
    message: str = ""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the verification."""

    objects: int
    """Objects that have a payload."""
    hash_ok: int
    """Objects that also have references and whose id matches."""
    damaged: tuple[Damaged, ...] = ()
    """Sorted by id. An object may have a correct hash and a damaged frame."""
    missing: tuple[str, ...] = ()
    """Referenced ids that are not in the store, sorted."""
    root_missing: bool = False
    """The store lacks the root object."""

    @property
    def good(self) -> bool:
        """Whether no object is damaged and the root exists, or there is no store at all."""
        return not self.damaged and not (self.root_missing and self.objects)


def verify(
    directory: Path,
    *,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    check: Check = no_check,
) -> Verification:
    """Check all objects of the bundle in `directory`. `check` is called between pieces."""
    root_id = Directory(directory, limits=limits).info().root_id
    return _Verifier(directory, limits, check).verify(root_id)


class _Verifier:
    def __init__(self, directory: Path, limits: Limits, check: Check) -> None:
        self._store = Directory(directory, limits=limits, checked=False)
        self._data = directory / DATA
        self._limits = limits
        self._check = check
        self._decoded = 0
        self._damaged: list[Damaged] = []
        self._pointed_at: set[bytes] = set()

    def verify(self, root_id: str) -> Verification:
        payloads, references = self._names()
        hash_ok = 0
        for object_id in sorted(payloads):
            self._check()
            hash_ok += self._verified(object_id, has_references=object_id in references)
        for object_id in sorted(references - payloads):
            self._note(object_id, "missing data", "it has references and no payload")
        missing = sorted(
            _text(digest) for digest in self._pointed_at if _text(digest) not in payloads
        )
        return Verification(
            objects=len(payloads),
            hash_ok=hash_ok,
            damaged=tuple(sorted(self._damaged, key=lambda one: (one.object_id, one.cause))),
            missing=tuple(missing),
            root_missing=root_id not in payloads,
        )

    def _names(self) -> tuple[set[str], set[str]]:
        """The ids that have a payload, and those that have references."""
        found: dict[str, set[str]] = {"data": set(), "refs": set()}
        count = 0
        for name in _listed(self._data):
            kind, _, object_id = name.partition(".")
            if kind not in found:
                continue
            count += 1
            if count > 2 * self._limits.entries:
                raise TooLarge(f"more than {self._limits.entries} objects (limit entries)")
            if is_id(object_id):
                found[kind].add(object_id)
            else:
                self._note(shown(object_id), "no object id", f"a file {kind}.* with a strange name")
        return found["data"], found["refs"]

    def _verified(self, object_id: str, *, has_references: bool) -> bool:
        """Check one object; returns whether its hash is correct."""
        digest = hashlib.blake2b()
        try:
            references = self._store.refs(object_id) if has_references else ()
        except ObjectProblem as problem:
            self._note(object_id, "damaged references", str(problem))
            return False
        except TooLarge as problem:
            self._note(object_id, "too large", str(problem))
            return False
        for reference in references:
            packed = _packed(reference)
            digest.update(packed)
            self._pointed_at.add(packed)
        if not has_references:
            self._note(object_id, "missing references", "without them its hash cannot be checked")
        try:
            cause = self._read(object_id, digest)
        except ObjectProblem as problem:
            self._note(object_id, "unreadable", str(problem))
            return False
        right = _text(b"\0" + digest.digest()) == object_id
        if cause is not None:
            self._damaged.append(cause)
        elif has_references and not right:
            self._note(object_id, "hash mismatch", "its bytes do not match its id")
        return has_references and right

    def _read(self, object_id: str, digest: hashlib.blake2b) -> Damaged | None:
        """Hash all stored bytes, and decode them on the way."""
        blocks = self._hashed(object_id, digest)
        cause: Damaged | None = None
        size = 0
        try:
            for piece in pieces(blocks):
                size += len(piece)
                self._produced(len(piece))
                if size > self._limits.entry_bytes:
                    message = f"more than {self._limits.entry_bytes} bytes (limit entry_bytes)"
                    cause = Damaged(object_id=object_id, cause="too large", message=message)
                    break
        except FrameDamaged as problem:
            cause = Damaged(object_id=object_id, cause="damaged frame", message=str(problem))
        for _ in blocks:
            pass
        return cause

    def _hashed(self, object_id: str, digest: hashlib.blake2b) -> Iterator[bytes]:
        for block in self._store.blocks(object_id):
            digest.update(block)
            yield block

    def _produced(self, count: int) -> None:
        self._check()
        self._decoded += count
        if self._decoded > self._limits.total_bytes:
            raise TooLarge(
                f"the objects hold more than {self._limits.total_bytes} bytes (limit total_bytes)"
            )

    def _note(self, object_id: str, cause: Cause, message: str) -> None:
        self._damaged.append(Damaged(object_id=object_id, cause=cause, message=message))


def _listed(directory: Path) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield entry.name
    except (FileNotFoundError, NotADirectoryError):
        return


def _packed(reference: str) -> bytes:
    kind, _, digest = reference.partition("~")
    return bytes([int(kind)]) + urlsafe_b64decode(digest)


def _text(packed: bytes) -> str:
    return f"{packed[0]}~{urlsafe_b64encode(packed[1:]).decode('ascii')}"
