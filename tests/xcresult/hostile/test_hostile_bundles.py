"""Tests malicious bundles: each gives a typed error, or warnings and the parts that are still good.

Each test also checks that reading writes nothing and opens nothing outside of the bundle.
"""

import base64
import os
import plistlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.xcresult.hostile import tracing
from tests.xcresult.hostile.bundles import (
    Bundle,
    activity,
    attachment,
    case,
    group,
    record,
    summary,
    tests,
)
from tests.xcresult.writer.encoding import Typed, encode, reference, typed

from runyard.xcresult.archives.limits import MIB, Limits
from runyard.xcresult.bundle import parallel
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.exporting import export
from runyard.xcresult.bundle.reading import read, read_bundle
from runyard.xcresult.bundle.verifying import verify
from runyard.xcresult.errors import BundleInvalid, TooLarge, UnsupportedFormat, XcresultError
from runyard.xcresult.reader import result as reading
from runyard.xcresult.reader import walk
from runyard.xcresult.reader.figures import figures
from runyard.xcresult.reader.model import Result, Wanted
from runyard.xcresult.reader.report import report

ABSENT = "0~" + "A" * 86 + "=="
EVIL_IDS = {
    "up": "../../../../../../etc/passwd",
    "absolute": "/etc/passwd",
    "up behind a kind": "0~../../../../../../etc/passwd",
    "a slash in the right length": "0~" + "A" * 84 + "/.==",
    "a NUL": "0~" + "A" * 86 + "==\0",
    "another kind": "1~" + "A" * 86 + "==",
    "letters that are none": "0~" + "é" * 86 + "==",
    "empty": "",
    "long": "x" * 100_000,
}


@contextmanager
def only_inside(path: Path) -> Iterator[None]:
    """Assert that nothing is written, and that nothing outside of the bundle is opened."""
    before = tracing.tree(path.parent)
    with tracing.written(reads=True) as opened:
        yield
    outside = [one for one in opened if not Path(one).is_relative_to(path)]
    assert [one for one in outside if not one.endswith((".py", ".pyc"))] == []
    assert tracing.tree(path.parent) == before


def read_everything(path: Path, limits: Limits = Limits()) -> Result:  # noqa: B008  (frozen)
    """Read and verify the bundle, and build report and figures."""
    with only_inside(path):
        found = read(path, wanted=Wanted(activities=True), limits=limits)
        report(found)
        figures(found, objects=0, objects_hash_ok=0)
        verify(path, limits=limits)
    return found


def refused(path: Path, error: type[XcresultError], match: str, limits: Limits = Limits()) -> None:  # noqa: B008  (frozen)
    with only_inside(path), pytest.raises(error, match=match) as caught:
        read(path, limits=limits)
    assert caught.value.code == error.code
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


# ------------------------------------------------------------------------------------ ids, names, links


@pytest.mark.parametrize("what", EVIL_IDS)
def test_no_id_becomes_a_path(what: str, tmp_path: Path) -> None:
    evil = EVIL_IDS[what]
    bundle = Bundle(tmp_path / "X.xcresult")
    shot = attachment(None, payloadRef=typed("Reference", id=evil))
    # A refs file can contain valid ids only, so these objects have none.
    long = summary("good", activitySummaries=(activity(attachments=(shot,)),))
    good = bundle.store.put(encode(long).payload)
    bad = case("bad", summaryRef=typed("Reference", id=evil))
    payload = encode(tests(bad, case("good", good))).payload
    path = bundle.finish_with(bundle.put(record(bundle.store.put(payload))))
    found = read_everything(path)
    assert [one.function for one in found.cases] == ["bad", "good"]
    assert found.cases[0].status == "Success"
    (kept,) = found.cases[1].runs[0].attachments
    assert not kept.present
    assert len(found.warnings) == (1 if evil else 0)
    assert not Directory(path).has(evil)
    with only_inside_but(tmp_path / "out", path):
        manifest = export(Directory(path), found, tmp_path / "out")
    assert manifest.files == 0
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["manifest.json"]


@contextmanager
def only_inside_but(out: Path, path: Path) -> Iterator[None]:
    with tracing.written(reads=True) as opened:
        yield
    outside = [
        one
        for one in opened
        if not (Path(one).is_relative_to(path) or Path(one).is_relative_to(out))
    ]
    assert [one for one in outside if not one.endswith((".py", ".pyc"))] == []


EVIL_NAMES = {
    "up": "../../evil.sh",
    "absolute": "/etc/cron.d/evil",
    "NUL": "a\0b",
    "dots": "..",
    "dot": ".",
    "empty": "",
    "long": "n" * 5000,
    "the manifest's": "manifest.json",
    "two lines": "a\nb",
}


@pytest.mark.parametrize("what", EVIL_NAMES)
def test_no_name_becomes_a_path(what: str, tmp_path: Path) -> None:
    evil = EVIL_NAMES[what]
    bundle = Bundle(tmp_path / "X.xcresult")
    shots = (
        attachment(bundle.store.put(b"one"), filename=evil, name=evil),
        attachment(bundle.store.put(b"two"), filename="b.png", uuid=evil),
        attachment(bundle.store.put(b"six"), filename="c." + evil, uuid=evil),
    )
    long = bundle.put(summary(evil, activitySummaries=(activity(attachments=shots, title=evil),)))
    path = bundle.finish(group(evil, [case(evil, long, identifier=evil)]))
    found = read_everything(path)
    out = tmp_path / "deep" / "out"
    out.parent.mkdir()
    with only_inside_but(out, path):
        manifest = export(Directory(path), found, out)
    assert manifest.files == 3
    assert sum(1 for one in out.iterdir()) == 4
    assert sorted(one.name for one in tmp_path.iterdir()) == ["X.xcresult", "deep"]
    assert sorted(one.name for one in (tmp_path / "deep").iterdir()) == ["out"]


def test_links_and_pipes_in_the_store_are_damaged_objects(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    ids = [bundle.put(summary(name)) for name in ("link", "pipe", "directory", "refs")]
    path = bundle.finish(*(case(one, one_id) for one, one_id in zip("abcd", ids, strict=True)))
    for one_id in ids[:3]:
        bundle.file(one_id).unlink()
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    bundle.file(ids[0]).symlink_to(secret)
    os.mkfifo(bundle.file(ids[1]))
    bundle.file(ids[2]).mkdir()
    bundle.file(ids[3], "refs").unlink()
    bundle.file(ids[3], "refs").symlink_to(secret)
    found = read_everything(path)
    assert {one.object_id for one in found.warnings} == set(ids[:3])
    assert [one.status for one in found.cases] == ["Success"] * 4
    assert {one.cause for one in verify(path).damaged} == {"unreadable", "damaged references"}


# ------------------------------------------------------------------------------------------- damage


def damaged(bundle: Bundle, object_id: str, how: str) -> None:
    file = bundle.file(object_id)
    data = file.read_bytes()
    if how == "missing":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "cut short":
        file.write_bytes(data[: len(data) - 5])
    elif how == "flipped":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "of another":
        file.write_bytes(b"[T[K2:_nV6:String]K2:_vV5:hello]")
    elif how == "garbage":
        file.write_bytes(bytes(range(256)))


HOW = ("missing", "empty", "cut short", "flipped", "of another", "garbage")


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_summary_costs_its_case_the_details(how: str, tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    bad, good = bundle.put(summary("bad")), bundle.put(summary("good"))
    path = bundle.finish(case("bad", bad, testStatus="Failure"), case("good", good))
    damaged(bundle, bad, how)
    found = read_everything(path)
    assert [(one.function, one.status, one.duration) for one in found.cases] == [
        ("bad", "Failure", 0.5),
        ("good", "Success", 0.5),
    ]
    assert [len(one.runs[0].failures) for one in found.cases] == [0, 1]
    assert [one.object_id for one in found.warnings] == [bad]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("which", ["the root", "the tests"])
def test_without_its_root_or_its_tests_a_bundle_is_invalid(
    how: str, which: str, tmp_path: Path
) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    tests_id = bundle.put(tests(case("one"), case("two" * 1000)))
    root_id = bundle.put(record(tests_id))
    path = bundle.finish_with(root_id)
    damaged(bundle, root_id if which == "the root" else tests_id, how)
    refused(path, BundleInvalid, which)


def test_a_payload_under_anothers_id_is_not_exported(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    payload = bundle.store.put(b"the real one")
    shots = activity(attachments=(attachment(payload),))
    path = bundle.finish(case("one", bundle.put(summary("one", activitySummaries=(shots,)))))
    bundle.file(payload).write_bytes(b"a forged one")
    found = read_everything(path)
    manifest = export(Directory(path), found, tmp_path / "out")
    assert manifest.files == 0
    assert [one.why for one in manifest.missed] == ["its bytes do not match its id (hash mismatch)"]
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["manifest.json"]


# ----------------------------------------------------------------------------------- bombs and counts


def test_a_summary_that_is_a_bomb_is_passed_over(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    bomb = bundle.put(summary("bomb", padding="x" * (4 * MIB)))
    path = bundle.finish(case("bomb", bomb), case("good", bundle.put(summary("good"))))
    assert bundle.file(bomb).stat().st_size < 10_000
    found = read_everything(path, Limits(object_bytes=MIB))
    assert [one.function for one in found.cases] == ["bomb", "good"]
    assert [one.object_id for one in found.warnings] == [bomb]
    assert "object_bytes" in found.warnings[0].message


def test_a_root_that_is_a_bomb_is_too_large(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    path = bundle.finish_with(bundle.put(record(None, padding="x" * (4 * MIB))))
    refused(path, TooLarge, "object_bytes", Limits(object_bytes=MIB))


def test_many_bombs_are_too_large(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    cases = [
        case(f"n{number}", bundle.put(summary(f"n{number}", padding="x" * MIB)))
        for number in range(20)
    ]
    path = bundle.finish(*cases)
    refused(path, TooLarge, "ratio", Limits(ratio_floor=4 * MIB))
    refused(path, TooLarge, "object_bytes", Limits(object_bytes=100_000))
    refused(path, TooLarge, "decoded_bytes", Limits(decoded_bytes=10 * MIB))


def test_one_summary_under_many_runs_is_bounded(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    large = bundle.put(summary("large", padding="x" * MIB))
    path = bundle.finish(*(case(f"n{number}", large) for number in range(200)))
    refused(path, TooLarge, "decoded_bytes|ratio", Limits(decoded_bytes=20 * MIB))


def test_an_attachment_that_is_a_bomb_fills_no_disk(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    payload = bundle.store.put(bytes(8 * MIB))
    shots = activity(attachments=(attachment(payload, payloadSize=10),))
    path = bundle.finish(case("one", bundle.put(summary("one", activitySummaries=(shots,)))))
    found = read_everything(path)
    with pytest.raises(TooLarge, match="entry_bytes"):
        export(Directory(path), found, tmp_path / "out", limits=Limits(entry_bytes=MIB))
    assert [one for one in (tmp_path / "out").iterdir() if one.name != "manifest.json"] == []


COUNTS: dict[str, tuple[object, str, Callable[[int], list[Typed]]]] = {
    "runs": (walk, "RUNS", lambda count: [case("same")] * count),
    "suites": (walk, "SUITES", lambda count: [group(f"s{n}", ()) for n in range(count)]),
}


@pytest.mark.parametrize("what", COUNTS)
def test_absurd_counts_are_too_large(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, make = COUNTS[what]
    monkeypatch.setattr(module, name, 50)
    read_everything(Bundle(tmp_path / "A.xcresult").finish(*make(50)))
    refused(Bundle(tmp_path / "B.xcresult").finish(*make(51)), TooLarge, f"50 {what}")


def test_absurdly_many_targets_and_actions_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "TARGETS", 5)
    monkeypatch.setattr(reading, "ACTIONS", 20)
    bundle = Bundle(tmp_path / "A.xcresult")
    testables = tuple(typed("ActionTestableSummary", name=f"T{n}") for n in range(6))
    configuration = typed("ActionTestPlanRunSummary", testableSummaries=testables)
    tests_id = bundle.put(typed("ActionTestPlanRunSummaries", summaries=(configuration,)))
    refused(bundle.finish_with(bundle.put(record(tests_id))), TooLarge, "5 targets")
    bundle = Bundle(tmp_path / "B.xcresult")
    refused(bundle.finish_with(bundle.put(record(None, actions=21))), TooLarge, "20 actions")


def test_references_that_announce_more_than_they_are_cost_nothing(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    one = bundle.put(summary("one"))
    path = bundle.finish(case("one", one))
    for evil in (b"\x88" + b"\xff" * 8, b"\xff" + b"\xff" * 127, b"\x01\x88" + b"\x7f" * 8, b""):
        bundle.file(one, "refs").write_bytes(evil)
        found = read_everything(path)
        assert len(found.cases) == 1
        assert [one.cause for one in verify(path).damaged] == ["damaged references"]


@pytest.mark.slow
def test_several_processes_read_a_hostile_bundle_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "LARGE", 0)
    bundle = Bundle(tmp_path / "X.xcresult")
    names = ("good", "bomb", "missing", "flipped", "deep", "text")
    deep = nested(150, lambda inner: activity(subactivities=inner))
    ids = {name: bundle.put(summary(name)) for name in names}
    ids["bomb"] = bundle.put(summary("bomb", padding="x" * (4 * MIB)))
    ids["deep"] = bundle.put(summary("deep", activitySummaries=(deep,)))
    ids["text"] = bundle.put(
        summary("text\udce9".encode("utf-8", "surrogateescape").decode("latin-1"))
    )
    entries = [case(name, ids[name]) for name in names]
    entries += [
        summary("inline"),
        case("evil", summaryRef=typed("Reference", id="../../etc/passwd")),
    ]
    path = bundle.finish_with(bundle.put(record(bundle.store.put(encode(tests(*entries)).payload))))
    damaged(bundle, ids["missing"], "missing")
    damaged(bundle, ids["flipped"], "flipped")
    limits = Limits(object_bytes=MIB)
    alone = read(path, limits=limits)
    assert len(alone.warnings) == 5
    assert read(path, limits=limits, processes=2) == alone
    with pytest.raises(TooLarge, match="decoded_bytes"):
        read(path, limits=Limits(decoded_bytes=MIB), processes=2)


# --------------------------------------------------------------------------------- depth and cycles


def nested(levels: int, make: Callable[[tuple[Typed, ...]], Typed]) -> Typed:
    node = make(())
    for _ in range(levels - 1):
        node = make((node,))
    return node


def raw_nested(levels: int) -> bytes:
    """Build nested bytes without recursion, because the writer is recursive and would fail."""
    return b"[T[K2:_nV1:A]K1:a" + b"[S1:AK1:a" * levels + b"[S1:A]" + b"]" * levels + b"]"


def test_suites_may_be_deep_and_not_absurd(tmp_path: Path) -> None:
    deep = nested(60, lambda inner: group("s", inner or (case("one"),)))
    found = read_everything(Bundle(tmp_path / "A.xcresult").finish(deep))
    assert [len(one.suites) for one in found.cases] == [60]
    absurd = nested(150, lambda inner: group("s", inner or (case("one"),)))
    refused(Bundle(tmp_path / "B.xcresult").finish(absurd), BundleInvalid, "200 levels")


def test_absurdly_deep_activities_cost_their_case_the_details(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    fine = nested(60, lambda inner: activity(subactivities=inner))
    absurd = nested(150, lambda inner: activity(subactivities=inner))
    path = bundle.finish(
        case("fine", bundle.put(summary("fine", activitySummaries=(fine,)))),
        case("absurd", bundle.put(summary("absurd", activitySummaries=(absurd,)))),
    )
    found = read_everything(path)
    assert [len(one.runs[0].activities) for one in found.cases] == [1, 0]
    assert ["levels" in one.message for one in found.warnings] == [True]


@pytest.mark.parametrize("levels", [10_000, 300_000])
def test_a_root_of_absurd_depth_is_invalid(levels: int, tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    refused(
        bundle.finish_with(bundle.store.put(raw_nested(levels))), BundleInvalid, "levels|object"
    )


def test_a_chain_of_supertypes_is_bounded(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    chain = b"[T" + b"[K2:_nV1:AK2:_s" * 100_000
    refused(bundle.finish_with(bundle.store.put(chain)), BundleInvalid, "supertypes")


def forged(bundle: Bundle, object_id: str, value: Typed) -> None:
    """Write other bytes under an id and delete the refs file, so that the id cannot be verified."""
    bundle.file(object_id).write_bytes(encode(value).payload)
    bundle.file(object_id, "refs").unlink()


def test_objects_that_point_at_each_other_end(tmp_path: Path) -> None:
    """An id is a hash, so a real cycle needs objects whose ids cannot be checked."""
    bundle = Bundle(tmp_path / "X.xcresult")
    one, tests_id = bundle.put(summary("one")), bundle.put(tests(case("old")))
    root_id = bundle.put(record(tests_id))
    path = bundle.finish_with(root_id)
    forged(
        bundle, tests_id, tests(case("itself", tests_id), case("root", root_id), case("one", one))
    )
    forged(bundle, one, summary("one", summaryRef=reference(one), subtests=(case("in", one),)))
    forged(bundle, root_id, record(tests_id, logRef=reference(root_id), actions=3))
    found = read_everything(path)
    assert [one.function for one in found.cases] == ["itself", "root", "one"]
    assert [len(one.runs) for one in found.cases] == [3, 3, 3]
    forged_root = record(root_id)
    bundle.file(root_id).write_bytes(encode(forged_root).payload)
    found = read(path)
    assert found.cases == ()


def test_a_listing_that_lists_itself_ends(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    listing = bundle.store.put(b'[{"name":"Index","type":2}]', (ABSENT,))
    packed = bundle.file(listing, "refs").read_bytes()
    coverage = typed("CodeCoverageInfo", archiveRef=reference(listing), hasCoverageData=True)
    path = bundle.finish(case("one"), coverage=coverage, diagnosticsRef=reference(listing))
    itself = b"\0" + base64.urlsafe_b64decode(listing[2:])
    bundle.file(listing, "refs").write_bytes(packed[:2] + itself)
    assert len(read_everything(path).cases) == 1


# --------------------------------------------------------------------------- unknown types and versions


def test_unknown_types_are_warned_of_and_known_supertypes_are_read(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    entries = (
        b"[T[K2:_nV6:HologrK2:_s[K2:_nV3:Odd]]K4:name[T[K2:_nV6:String]K2:_vV1:x]]"
        b"[T[K2:_nV6:FutureK2:_s[K2:_nV18:ActionTestMetadata]]"
        b"K4:name[S6:StringK2:_vV6:future]K10:testStatus[S6:StringK2:_vV7:Success]"
        b"K3:new[S6:HologrK3:odd[T[K2:_nV5:Array][S6:StringK2:_vV1:y]]]]"
    )
    testable = (
        b"[T[K2:_nV21:ActionTestableSummary]K4:name[T[K2:_nV6:String]K2:_vV1:T]"
        b"K5:tests[S5:Array" + entries.replace(b"T[K2:_nV6:String]", b"S6:String") + b"]]"
    )
    whole = (
        b"[T[K2:_nV26:ActionTestPlanRunSummaries]K9:summaries[T[K2:_nV5:Array]"
        b"[T[K2:_nV24:ActionTestPlanRunSummary]K17:testableSummaries[S5:Array" + testable + b"]]]]"
    )
    tests_id = bundle.store.put(whole)
    path = bundle.finish_with(bundle.put(record(tests_id)))
    found = read_everything(path)
    assert [one.function for one in found.cases] == ["future"]
    assert ["unknown type 'Hologr'" in one.message for one in found.warnings] == [True]


def with_info(path: Path, **changes: object) -> Path:
    file = path / "Info.plist"
    file.write_bytes(plistlib.dumps(plistlib.loads(file.read_bytes()) | changes))
    return path


def test_a_later_minor_is_read_and_a_later_major_refused(tmp_path: Path) -> None:
    path = Bundle(tmp_path / "X.xcresult").finish(case("one"))
    for minor in (61, 99, 1000):
        found = read_everything(
            with_info(path, version={"major": 3, "minor": minor}, news=[1, "two"])
        )
        assert (found.format, len(found.cases)) == (f"3.{minor}", 1)
    for major in (0, 2, 4, 10**30):
        version = {"major": major, "minor": 0}
        with pytest.raises(UnsupportedFormat, match="format"):
            read(with_info(path, version=version) if major < 2**64 else _large(path, major))
    with_info(path, version={"major": 3, "minor": 56})
    refused(
        with_info(path, storage={"backend": "x" * 9999, "compression": "standard"}),
        UnsupportedFormat,
        "storage",
    )


def _large(path: Path, major: int) -> Path:
    file = path / "Info.plist"
    file.write_bytes(file.read_bytes().replace(b"<integer>4<", b"<integer>%d<" % major))
    return path


BOMB = b"""<?xml version="1.0"?><!DOCTYPE plist [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>
<plist><dict><key>rootId</key><string>&c;</string></dict></plist>"""
GARBAGE = {
    "empty": b"",
    "no plist": b"hello",
    "cut": b"<?xml version='1.0'?><plist><dict><key>rootId</key>",
    "a list": plistlib.dumps([1, 2]),
    "no keys": plistlib.dumps({}),
    "strange keys": plistlib.dumps({"version": 3, "rootId": "x", "storage": []}),
    "binary garbage": b"bplist00" + bytes(range(100)),
    "a binary cycle": b"bplist00\xa1\x00\x08"
    + bytes(6)
    + b"\1\1"
    + bytes(7)
    + b"\1"
    + bytes(15)
    + b"\x0a",
    "entities": BOMB,
    "deep": b"<plist>" + b"<array>" * 5000 + b"</array>" * 5000 + b"</plist>",
    "deep and open": b"<plist>" + b"<dict><key>a</key>" * 50_000,
    "a number of many digits": b"<plist><dict><key>version</key><integer>"
    + b"9" * 100_000
    + b"</integer></dict></plist>",
    "a bad date": b"<plist><dict><key>dateCreated</key><date>99</date></dict></plist>",
    "another encoding": "<?xml version='1.0' encoding='utf-7'?><plist/>".encode("utf-16"),
    "large": b" " * (2 << 20),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_for_info_is_an_invalid_bundle(what: str, tmp_path: Path) -> None:
    path = Bundle(tmp_path / "X.xcresult").finish(case("one"))
    (path / "Info.plist").write_bytes(GARBAGE[what])
    refused(path, BundleInvalid, "Info.plist")
    with pytest.raises(BundleInvalid):
        verify(path)


@pytest.mark.parametrize("root", ["", "0~short", "../../etc/passwd", ABSENT, 5, None, ["x"]])
def test_a_root_that_is_none_is_an_invalid_bundle(root: object, tmp_path: Path) -> None:
    path = Bundle(tmp_path / "X.xcresult").finish(case("one"))
    value = {"hash": root} if root is not None else "x"
    refused(with_info(path, rootId=value), BundleInvalid, "root")


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0" + bytes(4000), b"garbage" * 1000])
def test_a_damaged_cache_is_an_error(data: bytes, tmp_path: Path) -> None:
    path = Bundle(tmp_path / "X.xcresult").finish(case("one"))
    with_info(path, rootId={"hash": ABSENT})
    (path / "database.sqlite3").write_bytes(data)
    with pytest.raises(BundleInvalid) as caught:
        read_bundle(path)
    assert "\n" not in str(caught.value)


def test_untrusted_numbers_and_times_raise_no_errors(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    odd = (
        "",
        "nan",
        "inf",
        "-1",
        "1e999",
        "9" * 5000,
        "0x10",
        "１２",
        "true",
        "2026-99-99T00:00:00",
    )
    entries = []
    for word in odd:
        failure = typed("ActionTestFailureSummary", message="m", lineNumber=word, timestamp=word)
        policy = typed("ActionTestRepetitionPolicySummary", iteration=word, totalIterations=word)
        long = summary(
            "odd",
            failureSummaries=(failure,),
            repetitionPolicySummary=policy,
            duration=word,
            activitySummaries=(
                activity(
                    start=word,
                    finish=word,
                    attachments=(attachment(None, payloadSize=word, timestamp=word),),
                ),
            ),
            performanceMetrics=(
                typed("ActionTestPerformanceMetricSummary", measurements=(word,), polarity=word),
            ),
        )
        entries.append(case("odd", bundle.put(long), duration=word, testStatus=word))
    found = read_everything(bundle.finish(*entries))
    assert len(found.cases[0].runs) == len(odd)
    assert all(0 <= run.duration < 1e300 for run in found.cases[0].runs)
