"""Computes content ids from an object's references and bytes.

`id = "0~" + base64url(BLAKE2b-512(references || stored bytes))`: the references are the 65 bytes each that
the refs file contains, the stored bytes are those of the data file, compressed or not.

Invariant: a text that `is_id` accepts is safe as a part of a file name.
"""

import hashlib
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable

KIND = b"\x00"
REFERENCE = 65
"""Bytes of a reference: its kind, and a hash."""

_ID = re.compile(r"0~[A-Za-z0-9_-]{86}==", re.ASCII)


class RefsDamaged(ValueError):
    """The bytes are not a list of references."""


def is_id(text: str) -> bool:
    """Whether this is an object id, and so may become a file's name."""
    return _ID.fullmatch(text) is not None


def content_id(references: Iterable[str], stored: Iterable[bytes]) -> str:
    """The id of an object with these references and these stored bytes."""
    digest = new_hash(references)
    for part in stored:
        digest.update(part)
    return hashed_id(digest)


def new_hash(references: Iterable[str] = ()) -> hashlib.blake2b:
    """The hash of an object with these references, before the first of its stored bytes."""
    return hashlib.blake2b(b"".join(map(_packed, references)))


def hashed_id(digest: hashlib.blake2b) -> str:
    """Return the id for a hash of references and stored bytes."""
    return "0~" + urlsafe_b64encode(digest.digest()).decode("ascii")


def decode_refs(data: bytes, *, limit: int) -> tuple[str, ...]:
    """The ids that a refs file lists; `limit` bounds their number."""
    count, at = _length(data, 0)
    if count > limit or count > len(data):
        raise RefsDamaged(f"{count} references are declared in {len(data)} bytes")
    ids = []
    for _ in range(count):
        size, at = _length(data, at)
        packed = data[at : at + size]
        if size != REFERENCE or len(packed) != size:
            raise RefsDamaged(f"a reference of {size} bytes, {len(packed)} of them there")
        ids.append(f"{packed[0]}~{urlsafe_b64encode(packed[1:]).decode('ascii')}")
        at += size
    if at != len(data):
        raise RefsDamaged(f"{len(data) - at} bytes after the last reference")
    return tuple(ids)


def encode_refs(references: Iterable[str]) -> bytes:
    """Build a refs file with these ids."""
    packed = [_packed(reference) for reference in references]
    return b"".join([_number(len(packed)), *(_number(len(one)) + one for one in packed)])


def _packed(reference: str) -> bytes:
    kind, _, digest = reference.partition("~")
    return bytes([int(kind)]) + urlsafe_b64decode(digest)


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A number by the rule of DER lengths, and where it ends."""
    if at >= len(data):
        raise RefsDamaged("the list of references ends too early")
    first = data[at]
    if first < 0x80:
        return first, at + 1
    end = at + 1 + (first & 0x7F)
    if end > len(data):
        raise RefsDamaged("the list of references ends too early")
    return int.from_bytes(data[at + 1 : end], "big"), end


def _number(value: int) -> bytes:
    if value < 0x80:
        return bytes([value])
    width = (value.bit_length() + 7) // 8
    return bytes([0x80 | width]) + value.to_bytes(width, "big")
