"""Builds archives of a small bundle in every supported kind; Apple Archives by a writer of our own.

The builders can also write wrong sizes and names, which the reader must not trust.
"""

import gzip
import io
import lzma
import plistlib
import random
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping

import lzfse

from runyard.xcresult.reader.frames import compress
from runyard.xcresult.reader.ids import content_id, encode_refs

Files = dict[str, bytes]
gzipped = gzip.compress
xz = lzma.compress


def noise(count: int, seed: int = 7) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(count)


def info(root: str, *, major: int = 3, minor: int = 56) -> bytes:
    return plistlib.dumps(
        {
            "version": {"major": major, "minor": minor},
            "storage": {"backend": "fileBacked2", "compression": "standard"},
            "rootId": {"hash": root},
        }
    )


def stored_object(payload: bytes, refs: tuple[str, ...] = (), *, squeeze: bool = True) -> Files:
    """The two files of one object."""
    data = compress(payload) if squeeze else payload
    object_id = content_id(refs, [data])
    return {f"Data/data.{object_id}": data, f"Data/refs.{object_id}": encode_refs(refs)}


def object_id(files: Files) -> str:
    (name,) = (name for name in files if name.startswith("Data/data."))
    return name.removeprefix("Data/data.")


def small_bundle() -> Files:
    """Build the files of a bundle: an empty root, and payloads of several kinds."""
    root = stored_object(b"[T[K2:_nV23:ActionsInvocationRecord]]")
    files = {"Info.plist": info(object_id(root)), **root}
    for payload in (b"", b"zeros" * 100_000, noise(700_000)):
        files |= stored_object(payload, squeeze=False)
    return files


def inside(directory: str, files: Files) -> Files:
    return {f"{directory}/{name}": data for name, data in files.items()}


# ------------------------------------------------------------------------------------------ apple archives


def field(key: str, value: bytes) -> bytes:
    return key.encode("ascii") + value


def entry(
    path: str | bytes, data: bytes | None = None, *, kind: str = "F", magic: bytes = b"AA01"
) -> bytes:
    """Build one entry, with the additional fields that real clients write."""
    name = path if isinstance(path, bytes) else path.encode()
    fields = [
        field("TYP1", kind.encode()),
        field("PATP", struct.pack("<H", len(name)) + name),
        field("UID2", struct.pack("<H", 501)),
        field("GID1", b"\x14"),
        field("MOD2", struct.pack("<H", 0o777)),
        field("FLG1", b"\0"),
        field("MTMT", bytes(12)),
        field("CTMS", bytes(8)),
        field("SLC*", b""),
    ]
    if kind == "L":
        fields.append(field("LNKP", struct.pack("<H", 11) + b"/etc/passwd"))
    blobs = b""
    if data is not None:
        fields += [field("XATA", struct.pack("<H", 5)), field("SH2H", bytes(32))]
        fields.append(
            field("DATB", struct.pack("<L", len(data)))
            if len(data) % 2
            else field("DATC", struct.pack("<Q", len(data)))
        )
        blobs = b"xattr" + data
    body = b"".join(fields)
    return magic + struct.pack("<H", len(body) + 6) + body + blobs


def apple_entries(files: Mapping[str, bytes], *, magic: bytes = b"AA01") -> bytes:
    whole = [entry("", kind="D", magic=magic)]
    directories = {name.rpartition("/")[0] for name in files if "/" in name}
    whole += [entry(name, kind="D", magic=magic) for name in sorted(directories)]
    whole += [entry(name, data, magic=magic) for name, data in files.items()]
    return b"".join(whole)


def raw_deflate(data: bytes) -> bytes:
    encoder = zlib.compressobj(5, zlib.DEFLATED, -15)
    return encoder.compress(data) + encoder.flush()


ENCODERS = {
    "-": lambda data: data,
    "z": zlib.compress,
    "x": lzma.compress,
    "e": lzfse.compress,
}


def blocks(data: bytes, letter: str = "e", *, block: int = 1 << 18, bare: bool = False) -> bytes:
    """Build the layer of blocks; a block that does not compress is stored."""
    out = [b"pbz" + letter.encode(), struct.pack(">Q", block)]
    encode = raw_deflate if bare else ENCODERS[letter]
    for start in range(0, len(data), block):
        part = data[start : start + block]
        packed = encode(part)
        packed = packed if len(packed) < len(part) else part
        out += [struct.pack(">QQ", len(part), len(packed)), packed]
    return b"".join(out)


# ------------------------------------------------------------------------------------------- zip and tar


def zipped(
    files: Mapping[str, bytes] | Iterable[tuple[zipfile.ZipInfo | str, bytes]],
    *,
    method: int = zipfile.ZIP_DEFLATED,
) -> bytes:
    buffer = io.BytesIO()
    pairs = files.items() if isinstance(files, Mapping) else files
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in pairs:
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(
    files: Mapping[str, bytes] | Iterable[tuple[tarfile.TarInfo | str, bytes]],
    *,
    format: int = tarfile.PAX_FORMAT,
) -> bytes:
    buffer = io.BytesIO()
    pairs = files.items() if isinstance(files, Mapping) else files
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, data in pairs:
            member = tarfile.TarInfo(name) if isinstance(name, str) else name
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
