"""Writes the content-addressed store of a bundle.

A payload is one zstd frame without a content size, or raw when that is not larger. Its id is the hash of its
references and its bytes as stored. The same payload is written once, however often it is given.

`put_pieces` takes a payload of any size piece by piece: memory does not grow with it.
"""

import base64
import hashlib
import plistlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from tests.xcresult.writer.encoding import Typed, encode

from runyard.xcresult.reader.frames import MAGIC, Encoding, new_encoder

FRAME: dict[int, int] = {
    Encoding.compression_level: 1,
    Encoding.content_size_flag: 0,
}
KINDS = {"file": 1, "directory": 2}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A file or a directory of a listing."""

    object_id: str
    kind: Literal["file", "directory"] = "file"


class Store:
    """Data/ of a bundle."""

    def __init__(self, directory: Path, *, explicit: bool) -> None:
        self._data = directory / "Data"
        self._data.mkdir(parents=True)
        self._prefix = f"{self._data}/"
        self._explicit = explicit
        self._known: set[str] = set()
        self._compressor = new_encoder(options=FRAME)

    @property
    def objects(self) -> int:
        """The number of objects."""
        return len(self._known)

    def put(self, payload: bytes, refs: tuple[str, ...] = ()) -> str:
        """Write a payload; returns its id."""
        # In two steps, because a frame compressed in one step contains the size of its content.
        framed = self._compressor.compress(payload) + self._compressor.flush()
        # A raw payload that begins like a frame would be read as a frame.
        stored = framed if len(framed) < len(payload) or payload[:4] == MAGIC else payload
        packed = b"".join(map(_packed, refs))
        object_id = _object_id(hashlib.blake2b(packed + stored))
        if object_id not in self._known:
            self._known.add(object_id)
            self._write(f"data.{object_id}", stored)
            self._write(f"refs.{object_id}", listed(packed, len(refs)))
        return object_id

    def put_object(self, value: Typed) -> str:
        """Write a typed object; returns its id."""
        encoded = encode(value, explicit=self._explicit)
        return self.put(encoded.payload, encoded.refs)

    def put_directory(self, entries: Mapping[str, Entry]) -> str:
        """Write a listing, sorted by name; its references are its entries."""
        names = sorted(entries)
        listing = [{"name": name, "type": KINDS[entries[name].kind]} for name in names]
        return self.put(msgspec.json.encode(listing), tuple(entries[n].object_id for n in names))

    def put_pieces(self, pieces: Callable[[], Iterable[bytes]]) -> str:
        """Write a payload in pieces. It is compressed if that makes its first piece smaller."""
        first = next(iter(pieces()), b"")
        compressor = new_encoder(options=FRAME)
        framed = len(compressor.compress(first) + compressor.flush()) < len(first)
        part = self._data / "part"
        digest = hashlib.blake2b()
        with part.open("wb") as file:
            for piece in pieces():
                stored = compressor.compress(piece) if framed or first[:4] == MAGIC else piece
                digest.update(stored)
                file.write(stored)
            if framed or first[:4] == MAGIC:
                stored = compressor.flush()
                digest.update(stored)
                file.write(stored)
        object_id = _object_id(digest)
        self._known.add(object_id)
        part.rename(self._data / f"data.{object_id}")
        self._write(f"refs.{object_id}", listed(b"", 0))
        return object_id

    def lose(self, object_id: str) -> None:
        """Delete an object, as after pruning; references to it stay."""
        self._known.discard(object_id)
        for kind in ("data", "refs"):
            (self._data / f"{kind}.{object_id}").unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        with open(self._prefix + name, "wb", buffering=0) as file:  # noqa: PTH123  (a third faster)
            file.write(data)


def write_info(directory: Path, *, minor: int, root_id: str, created: float) -> None:
    """Info.plist: the format, and where the graph of objects begins."""
    info: dict[str, object] = {
        "dateCreated": datetime.fromtimestamp(created, tz=UTC).replace(tzinfo=None, microsecond=0),
        "externalLocations": [],
        "rootId": {"hash": root_id},
        "storage": {"backend": "fileBacked2", "compression": "standard"},
        "version": {"major": 3, "minor": minor},
    }
    if minor >= 60:
        info["directoryImportMode"] = "concurrent"
    (directory / "Info.plist").write_bytes(plistlib.dumps(info))


def listed(packed: bytes, count: int) -> bytes:
    """A refs file, from its references of 65 bytes."""
    references = (b"\x41" + packed[at : at + 65] for at in range(0, len(packed), 65))
    return _length(count) + b"".join(references)


def _packed(object_id: str) -> bytes:
    return b"\x00" + base64.urlsafe_b64decode(object_id[2:])


def _object_id(digest: "hashlib.blake2b") -> str:
    return "0~" + base64.urlsafe_b64encode(digest.digest()).decode()


def _length(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    size = (value.bit_length() + 7) // 8
    return bytes((0x80 | size,)) + value.to_bytes(size, "big")
