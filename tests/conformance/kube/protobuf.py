"""Bodies in protobuf, written by hand: the few types of fields that kubectl's bodies have."""

MAGIC = b"k8s\x00"
KIND = "application/vnd.kubernetes.protobuf"


def field(number: int, value: bytes | int) -> bytes:
    """One field: a number, or bytes (a text, or a message)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (2**64 - 1))
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """A number in groups of seven bits."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def envelope(kind: str, raw: bytes, *, version: str = "v1") -> bytes:
    """An object with the kind that it is of."""
    what = field(1, field(1, version.encode()) + field(2, kind.encode()))
    return MAGIC + what + field(2, raw)
