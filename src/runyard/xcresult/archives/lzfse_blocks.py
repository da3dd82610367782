"""Decodes LZFSE into a buffer of a fixed size.

The wheel's own `decompress` grows its buffer as long as the data requires, so a few bytes could use all memory. The
library also exports the C function below it, which writes at most a given number of bytes; that one is used here. The
buffer is one byte larger than the block's declared size, so that a wrong size is detected.
"""

import ctypes
from functools import cache

import lzfse

from runyard.xcresult.errors import BundleInvalid, UnsupportedFormat


def decode_lzfse(data: bytes, size: int) -> bytes:
    """Decode a block to exactly `size` bytes; raises BundleInvalid otherwise."""
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
