"""The manifest of a VM image in tart's format: what will be downloaded, and what it becomes on the disk. Pure.

An image's layers are the VM's configuration, chunks of its disk (LZ4), and the NVRAM. A manifest comes from a registry,
so sizes are bounded and whatever has not the expected form is a `NotAnImage`.
"""

import re
from typing import Annotated, Any

import msgspec

TYPES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
LISTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
LARGEST = 4 << 20  # bytes of a manifest; registries accept no larger one either

_DISK_SIZE = "org.cirruslabs.tart.uncompressed-disk-size"
_NUMBER = re.compile(r"[0-9]{1,15}")
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class NotAnImage(ValueError):
    """The manifest is not that of a VM image; the message is the cause."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large an image is."""

    bytes: int  # to be downloaded
    disk_bytes: int  # of the guest's disk; 0 if the image does not say
    layers: int


class _Layer(msgspec.Struct, rename="camel"):
    media_type: str
    size: _Size


class _Manifest(msgspec.Struct, rename="camel"):
    schema_version: int = 0
    media_type: str = ""
    layers: list[_Layer] | None = None
    manifests: list[Any] | None = None
    annotations: dict[str, str] | None = None


def sizes(content: bytes) -> Sizes:
    """Read a manifest; raises `NotAnImage`."""
    try:
        found = msgspec.json.decode(content, type=_Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotAnImage("its manifest cannot be read") from None
    if found.media_type in LISTS or found.manifests is not None:
        raise NotAnImage("it is a list of images for several platforms")
    layers = found.layers or []
    if found.schema_version != 2 or not layers:
        raise NotAnImage("its manifest names no layers")
    size = (found.annotations or {}).get(_DISK_SIZE, "")
    return Sizes(
        bytes=sum(each.size for each in layers),
        disk_bytes=int(size) if _NUMBER.fullmatch(size) else 0,
        layers=len(layers),
    )
