"""Tests that any invalid property list raises only PlistDamaged."""

import plistlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.xcresult.reader.plists import PlistDamaged, load_plist

GOOD = plistlib.dumps({"a": [1, 2.5, "x"], "b": {"c": b"data", "d": True}})


def test_both_formats_are_read() -> None:
    value = {"formatVersion": 1}
    assert load_plist(plistlib.dumps(value)) == value
    assert load_plist(plistlib.dumps(value, fmt=plistlib.FMT_BINARY)) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<plist><key>a</key></plist>",  # a key outside of any dictionary
        b"<plist><dict><string>a</string></dict></plist>",
        b"<plist><date>never</date></plist>",
        b"<plist><integer></integer></plist>",
        b"<plist></dict>",
        b"bplist00\xd1",
    ],
)
def test_damage_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(PlistDamaged):
        load_plist(data)


@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=6), st.integers(0, 8))
def test_any_damage_is_that_error_or_a_value(at: int, put: bytes, drop: int) -> None:
    try:
        load_plist(GOOD[:at] + put + GOOD[at + drop :])
    except PlistDamaged as error:
        text = str(error)
    else:
        text = ""
    assert "\n" not in text
