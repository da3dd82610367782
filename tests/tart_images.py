"""Synthetic images in tart's format, and pushing them to a registry. Needs only the standard library.

An image has tart's layout: the VM's configuration, the disk in chunks and the NVRAM as layers, with tart's media types
and annotations. The chunks are LZ4 as Apple's compression library writes it, in blocks that are stored as they
are: any reader of that format can unpack them, and this one needs no compressor.

    image = tart_image(disk=b"...", chunk=1 << 20)
    digest = push(image, "127.0.0.1:5000", "acme/macos", "sequoia", "latest")
"""

import base64
import hashlib
import http.client
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
CONFIG = "application/vnd.cirruslabs.tart.config.v1"
DISK = "application/vnd.cirruslabs.tart.disk.v2"
NVRAM = "application/vnd.cirruslabs.tart.nvram.v1"

DISK_SIZE = "org.cirruslabs.tart.uncompressed-disk-size"  # of the manifest
UPLOADED = "org.cirruslabs.tart.upload-time"  # of the manifest
CHUNK_SIZE = "org.cirruslabs.tart.uncompressed-size"  # of a chunk
CHUNK_DIGEST = "org.cirruslabs.tart.uncompressed-content-digest"  # of a chunk

_STORED, _END = b"bv4-", b"bv4$"
_BLOCK = 1 << 16
_TIMEOUT = 30.0
_SOME = b"".join(number.to_bytes(4, "big") for number in range(5000))


@dataclass(frozen=True)
class Image:
    """A manifest and the blobs that it names, by digest."""

    manifest: bytes
    blobs: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)

    @property
    def bytes(self) -> int:
        """What a pull downloads: all layers."""
        return sum(each["size"] for each in json.loads(self.manifest)["layers"])


def tart_image(
    *,
    disk: bytes = _SOME,
    chunk: int = 8192,
    nvram: bytes = b"nvram",
    config: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Image:
    """An image whose disk has this content; `config` and `annotations` are added to what tart writes."""
    blobs: dict[str, bytes] = {}

    def layer(kind: str, content: bytes, notes: Mapping[str, str] | None = None) -> dict[str, Any]:
        blobs[digest_of(content)] = content
        found = {"mediaType": kind, "size": len(content), "digest": digest_of(content)}
        return found | ({"annotations": dict(notes)} if notes else {})

    chunks = [disk[at : at + chunk] for at in range(0, len(disk), chunk)]
    layers = [
        layer(CONFIG, _json({**vm_config(), **(config or {})})),
        *(layer(DISK, packed(each), _of_chunk(each)) for each in chunks),
        layer(NVRAM, nvram),
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layer(OCI_CONFIG, _json({"architecture": "arm64", "os": "darwin"})),
        "layers": layers,
        "annotations": {
            DISK_SIZE: str(len(disk)),
            UPLOADED: "2026-01-01T00:00:00Z",
            **(annotations or {}),
        },
    }
    return Image(_json(manifest), blobs)


def vm_config() -> dict[str, Any]:
    """The configuration of a VM, with the keys that tart writes."""
    return {
        "version": 1,
        "os": "darwin",
        "arch": "arm64",
        "ecid": base64.b64encode(b"ecid").decode(),
        "hardwareModel": base64.b64encode(b"model").decode(),
        "cpuCountMin": 2,
        "cpuCount": 4,
        "memorySizeMin": 4 << 30,
        "memorySize": 8 << 30,
        "macAddress": "02:00:00:00:00:01",
        "display": {"width": 1024, "height": 768},
        "diskFormat": "raw",
    }


def packed(content: bytes) -> bytes:
    """The content of a disk chunk as a layer."""
    pieces = [content[at : at + _BLOCK] for at in range(0, len(content), _BLOCK)]
    stored = (_STORED + struct.pack("<I", len(each)) + each for each in pieces)
    return b"".join(stored) + _END


def unpacked(layer: bytes) -> bytes:
    """The content of a disk chunk; `ValueError` for one that `packed` has not written."""
    content, at = bytearray(), 0
    while layer[at : at + 4] == _STORED:
        (size,) = struct.unpack_from("<I", layer, at + 4)
        content += layer[at + 8 : at + 8 + size]
        at += 8 + size
    if layer[at:] != _END:
        raise ValueError("not a disk chunk of stored blocks")
    return bytes(content)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _of_chunk(content: bytes) -> dict[str, str]:
    return {CHUNK_SIZE: str(len(content)), CHUNK_DIGEST: digest_of(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


# ── pushing ─────────────────────────────────────────────────────────────────────────────────────────


def push(image: Image, address: str, namespace: str, *tags: str, authorization: str = "") -> str:
    """Push an image under these tags to `host:port`, over plain HTTP; returns its digest.

    Blobs that the registry has already are not sent again. Without a tag the image is pushed by its digest only.
    `authorization` is the header, see `basic`.
    """
    host = http.client.HTTPConnection(address, timeout=_TIMEOUT)
    headers = {"Authorization": authorization} if authorization else {}
    try:
        for digest, content in image.blobs.items():
            _push_blob(host, f"/v2/{namespace}/blobs", digest, content, headers)
        for reference in tags or (image.digest,):
            path = f"/v2/{namespace}/manifests/{reference}"
            _request(host, "PUT", path, 201, image.manifest, headers | {"Content-Type": MANIFEST})
    finally:
        host.close()
    return image.digest


def basic(user: tuple[str, str]) -> str:
    """The header of a user name and a password."""
    return "Basic " + base64.b64encode(":".join(user).encode()).decode()


def _push_blob(
    host: http.client.HTTPConnection,
    path: str,
    digest: str,
    content: bytes,
    headers: Mapping[str, str],
) -> None:
    status, _ = _request(host, "HEAD", f"{path}/{digest}", 0, b"", headers)
    if status == 200:
        return
    _, location = _request(host, "POST", f"{path}/uploads/", 202, b"", headers)
    at = urlsplit(location)
    query = f"{at.query}&" if at.query else ""
    kind = {"Content-Type": "application/octet-stream"}
    _request(host, "PUT", f"{at.path}?{query}digest={digest}", 201, content, {**headers, **kind})


def _request(
    host: http.client.HTTPConnection,
    method: str,
    path: str,
    expected: int,
    body: bytes,
    headers: Mapping[str, str],
) -> tuple[int, str]:
    host.request(method, path, body=body or None, headers=dict(headers))
    answer = host.getresponse()
    text = answer.read()
    if expected and answer.status != expected:
        raise OSError(f"{method} {path}: {answer.status} {text[:500]!r}")
    return answer.status, answer.getheader("Location", "")
