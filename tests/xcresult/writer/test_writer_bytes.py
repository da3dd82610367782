"""Tests that synthetic bundles have the bytes of the format: encoding, ids, frames, listings."""

import plistlib
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.xcresult.writer.encoding import Scalar, Typed, encode, reference, typed
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.storing import Entry, Store, write_info
from tests.xcresult.writer.writing import write_bundle

from runyard.xcresult.bundle.verifying import verify
from runyard.xcresult.reader.decode import decode

SUMMARY = (
    "[T[K2:_nV17:ActionTestSummaryK2:_s[K2:_nV35:ActionTestSummaryIdentifiableObjectK2:_s"
    "[K2:_nV25:ActionAbstractTestSummary]]]K10:identifier[T[K2:_nV6:String]K2:_vV27:AppFrameworkTests/example()]"
    "K13:identifierURL[S6:StringK2:_vV72:test://com.apple.xcode/App/AppFrameworkTests/AppFrameworkTests/example()]"
    "K4:name[S6:StringK2:_vV9:example()]K10:testStatus[S6:StringK2:_vV7:Success]]"
)
EVERYTHING = Plan(
    cases=30,
    targets=2,
    suites=3,
    nesting=3,
    named=True,
    top_level=2,
    test_plans=2,
    devices=2,
    configurations=2,
    failures=4,
    failures_each=2,
    skips=2,
    expected_failures=2,
    retries=2,
    arguments=6,
    tags=9,
    bugs=9,
    documented=9,
    metrics=3,
    activities=5,
    attachments=9,
    payloads=4,
    build_issues=5,
    runner_errors=2,
    sessionless=2,
    coverage=3,
    diagnostics=2,
)


def stored(directory: Path, object_id: str) -> bytes:
    return (directory / "Data" / f"data.{object_id}").read_bytes()


def test_an_object_is_encoded_byte_for_byte_as_xcode_encodes_it() -> None:
    summary = typed(
        "ActionTestSummary",
        testStatus="Success",
        identifier="AppFrameworkTests/example()",
        name="example()",
        duration=None,
        failureSummaries=(),
        identifierURL="test://com.apple.xcode/App/AppFrameworkTests/AppFrameworkTests/example()",
    )
    assert encode(summary).payload.decode() == SUMMARY


def test_lengths_count_bytes_and_not_characters() -> None:
    assert b"V8:Gr\xc3\xb6\xc3\x9fe]" not in encode(typed("X", a="Größe")).payload
    assert b"V7:Gr\xc3\xb6\xc3\x9fe]" in encode(typed("X", a="Größe")).payload


def test_empties_and_zeros_are_written_only_where_the_format_writes_them() -> None:
    value = typed("X", none=None, array=(), zero=0, no=False, text="", real=0.0)
    assert encode(value).payload.count(b"K") == 2 + 2 + 3  # X, two types, two values, text, real
    assert b"K5:array" in encode(value, explicit=True).payload
    assert b"K4:zero" in encode(value, explicit=True).payload
    assert b"K2:no" in encode(value, explicit=True).payload
    assert b"none" not in encode(value, explicit=True).payload


def test_what_has_no_type_in_a_bundle_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no type"):
        encode(Typed("X", {"a": object()}))


def test_the_reader_decodes_every_kind_of_value() -> None:
    made = (typed("Part", number=number) for number in (1, 2))
    value = typed("X", text="[S1:a]K:", real=1.5, parts=made, when=Scalar("Date", b"2026"))
    assert decode(encode(value).payload)


def test_references_are_collected_once_and_in_order() -> None:
    ids = [f"0~{letter}" for letter in "bab"]
    assert encode(typed("X", all=[reference(each) for each in ids])).refs == ("0~b", "0~a")


def test_ids_are_those_of_the_format(tmp_path: Path) -> None:
    store = Store(tmp_path / "x.xcresult", explicit=False)
    empty = store.put_directory({})
    assert empty == (
        "0~4VqMqsI5lOfxRppnud6-VDWcNsU8J7VgFCJfW2dXPwOcAkvU-I8Um5yp9n0Zv6nr3VmcxYggaVMDFfR0U_vjKw=="
    )
    inner = (
        "0~Gj_vguguQPZXZJxGsflqvDQGoRso2dBO6KuHgHjm1ZcgHvi0pj3BXGD2IKWBF9qy5qZJzYg_azuWr8qlPS0haw=="
    )
    assert store.put_directory({"testmanagerd.log": Entry(inner)}) == (
        "0~KM8jKJc4wwrn7Cya7XhoSulWWyQ5zKSjNSBvh_s5Zfbttlb34kQSdpIj7y3dn0f9oUwmOVThMsjw_iSsYKDjcg=="
    )


def test_a_frame_has_the_header_of_xcodes_frames_and_what_does_not_shrink_is_raw(
    tmp_path: Path,
) -> None:
    bundle = tmp_path / "x.xcresult"
    store = Store(bundle, explicit=False)
    for put in (store.put, lambda data: store.put_pieces(lambda: iter((data,)))):
        assert stored(bundle, put(b"a" * 1000)).startswith(bytes.fromhex("28b52ffd0048"))
        assert stored(bundle, put(b"abc")) == b"abc"
        looks_framed = bytes.fromhex("28b52ffd") + b"x"
        assert stored(bundle, put(looks_framed)).startswith(bytes.fromhex("28b52ffd0048"))
    assert store.objects == 3


def test_long_reference_lists_are_counted_by_the_rule(tmp_path: Path) -> None:
    bundle = tmp_path / "x.xcresult"
    store = Store(bundle, explicit=False)
    entries = {f"{number:03}": Entry(store.put(str(number).encode())) for number in range(361)}
    refs = (bundle / "Data" / f"refs.{store.put_directory(entries)}").read_bytes()
    assert refs[:5] == bytes.fromhex("820169") + b"\x41\x00"
    assert len(refs) == 3 + 361 * 66


@pytest.mark.parametrize("minor", [20, 60])
def test_info_names_the_format_and_the_root(tmp_path: Path, minor: int) -> None:
    write_info(tmp_path, minor=minor, root_id="0~x", created=0.0)
    info = plistlib.loads((tmp_path / "Info.plist").read_bytes())
    assert info["version"] == {"major": 3, "minor": minor}
    assert info["rootId"] == {"hash": "0~x"}
    assert ("directoryImportMode" in info) == (minor == 60)


@pytest.mark.slow
@pytest.mark.parametrize("minor", [20, 24, 26, 34, 39, 44, 49, 53, 54, 56, 60])
def test_every_object_of_a_bundle_verifies_and_none_is_missing(tmp_path: Path, minor: int) -> None:
    written = write_bundle(tmp_path / "x.xcresult", replace(EVERYTHING, minor=minor))
    found = verify(tmp_path / "x.xcresult")
    assert (found.objects, found.hash_ok) == (written.objects, written.objects)
    assert found.damaged == () and found.missing == () and not found.root_missing


@pytest.mark.slow
def test_the_same_plan_makes_the_same_bytes(tmp_path: Path) -> None:
    first = write_bundle(tmp_path / "a", EVERYTHING)
    assert write_bundle(tmp_path / "b", EVERYTHING) == first
    other = write_bundle(tmp_path / "c", Plan(seed=2))
    assert other.root_id != write_bundle(tmp_path / "d", Plan(seed=3)).root_id


def test_a_format_that_never_was_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"3\.61"):
        write_bundle(tmp_path / "x", Plan(minor=61))
