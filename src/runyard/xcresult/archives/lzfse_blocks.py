"""LZFSE, decoded into a buffer of a size that we choose.

The wheel's own `decompress` grows its buffer for as long as the data asks it to, so a few bytes could
take all memory. The same library exports the C function beneath it, which writes at most as much as it
is told to; that one is called here. A block says how long it is, and gets one byte more, so that a lie
shows.
"""

import ctypes
from functools import cache

import lzfse  # type: ignore[import-untyped]  # a compiled module without stubs

from runyard.xcresult.errors import BundleInvalid, UnsupportedFormat


def decode_lzfse(data: bytes, size: int) -> bytes:
    """Exactly `size` bytes, or BundleInvalid."""
    target = ctypes.create_string_buffer(size + 1)
    written = _decoder()(target, size + 1, data, len(data), None)
    if written != size:
        raise BundleInvalid("the Apple Archive is damaged: an LZFSE block does not have its size")
    return target.raw[:size]


@cache
def _decoder() -> "ctypes._NamedFuncPointer":
    try:
        function = ctypes.CDLL(lzfse.__file__).lzfse_decode_buffer
    except (OSError, AttributeError) as error:
        raise UnsupportedFormat(
            "LZFSE cannot be decoded here: the installed lzfse package does not export its decoder"
        ) from error
    function.restype = ctypes.c_size_t
    function.argtypes = (
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
    )
    return function
