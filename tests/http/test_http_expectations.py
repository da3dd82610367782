"""A body that is not as expected is refused in plain words, with the place of the mistake."""

from collections.abc import Callable

import msgspec
import pytest

from runyard.http.expectations import in_words
from runyard.wire.rest import TenantPatch

BAD: dict[str, tuple[bytes, str]] = {
    "out of range": (b'{"weight": 0}', "weight: "),
    "another type": (b'{"weight": "x"}', "weight: "),
    "deeper": (b'{"limits": [{"platform": "linux", "vcpus": -1}]}', "limits[0].vcpus: "),
    "a field that is missing": (b'{"repositories": [{"weight": 1}]}', "repositories[0]: "),
    "at the top": (b"[]", ""),
}


@pytest.mark.parametrize(("body", "place"), BAD.values(), ids=BAD)
def test_the_decoders_own_notation_reaches_nobody(body: bytes, place: str) -> None:
    decode: Callable[[bytes], object] = msgspec.json.Decoder(TenantPatch).decode
    with pytest.raises(msgspec.ValidationError) as error:
        decode(body)
    text = in_words(error.value)
    assert text.startswith(place)
    assert not set("`$") & set(text) and "float" not in text
