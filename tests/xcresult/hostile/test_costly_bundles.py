"""Tests uploads that are small and cost much: each ends at a count, long before it costs 30 s or 512 MB.

The counts decide, not the clock, so most tests use small uploads and small limits. One test runs the child process of
the processor on the full uploads.
"""

import json
import plistlib
import struct
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.xcresult.archives import building
from tests.xcresult.hostile import costly
from tests.xcresult.hostile.bundles import (
    Bundle,
    activity,
    attachment,
    case,
    group,
    summary,
    typed,
)
from tests.xcresult.writer.plan import Plan
from tests.xcresult.writer.writing import write_bundle

from runyard.xcresult.archives import streams
from runyard.xcresult.archives.extracting import needed_bytes
from runyard.xcresult.archives.limits import MIB, Limits
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.reading import read, read_bundle
from runyard.xcresult.errors import TooLarge, XcresultError
from runyard.xcresult.processor.resource_limits import CPU_SECONDS, cpu_limit
from runyard.xcresult.reader import decode as decoding
from runyard.xcresult.reader import frames
from runyard.xcresult.reader.budget import FRAME, HELD, WORK, XZ_KIB, Budget
from runyard.xcresult.reader.crashes import read_crashes
from runyard.xcresult.reader.decode import Malformed, decode
from runyard.xcresult.reader.plists import PlistDamaged, load_plist
from runyard.xcresult.reader.report import report
from runyard.xcresult.reader.report_model import Quarantined

MEMORY = 512 * MIB


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are enforced on Linux only")
@pytest.mark.parametrize("attack", costly.ATTACKS)
def test_no_small_upload_takes_30_seconds_or_512_megabytes(attack: str, tmp_path: Path) -> None:
    upload = costly.ATTACKS[attack](tmp_path / "upload")
    program = [sys.executable, "-m", "tests.xcresult.hostile.child_cost", str(upload), str(MEMORY)]
    done = subprocess.run(program, capture_output=True, check=True)
    cost = json.loads(done.stdout)
    assert cost["code"] == 0, cost  # no signal, no traceback: the child itself says how it ended
    assert cost["answer"]["end"] in {"read", "refused"}
    assert cost["answer"]["code"] in {"", "too-large"}
    assert cost["cpu"] < CPU_SECONDS
    assert cost["peak"] < MEMORY


# ------------------------------------------------------------------------------------ compressed streams


STREAMS = {
    "zstd": costly.EMPTY_FRAME + costly.SKIPPABLE_FRAME * 5000,
    "gzip": bytes.fromhex("1f8b08000000000000ff03000000000000000000") * 5000,
    "apple": b"pbze" + struct.pack(">Q", 1 << 18) + bytes(16) * 5000,
}


@pytest.mark.parametrize("kind", STREAMS)
def test_frames_without_content_are_counted(kind: str, tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(STREAMS[kind])
    with pytest.raises(TooLarge, match="work"):
        read(upload, limits=Limits(work=4000 * FRAME))
    with pytest.raises(XcresultError) as caught:
        read(upload)
    assert type(caught.value) is not TooLarge


def test_short_members_are_not_copied_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = 0
    new = frames.new_decoder

    class Counting:
        def __init__(self) -> None:
            self._inner = new()

        def decompress(self, data: bytes, most: int = -1) -> bytes:
            nonlocal given
            given += len(data)
            return self._inner.decompress(data, most)

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setattr(streams, "new_decoder", Counting)
    upload = tmp_path / "upload"
    upload.write_bytes(STREAMS["zstd"])
    with pytest.raises(XcresultError):
        read(upload)
    assert given < 5100 * streams.LEAST + 2 * frames.PIECE


def test_members_of_every_size_still_make_one_stream(tmp_path: Path) -> None:
    whole = building.tarred(building.inside("X.xcresult", building.small_bundle()))
    sizes = (1, 7, 1023, 1025, 5000, 70_000, 300_000)
    parts, at = [], 0
    while at < len(whole):
        size = sizes[len(parts) % len(sizes)]
        parts += [frames.compress(whole[at : at + size]), costly.SKIPPABLE_FRAME]
        at += size
    upload = tmp_path / "upload"
    upload.write_bytes(b"".join(parts) + bytes(1000))
    plain = tmp_path / "plain"
    plain.write_bytes(whole)
    assert read(upload) == read(plain)


def test_headers_with_many_fields_are_counted(tmp_path: Path) -> None:
    fields = b"ABC*" * 16_000
    entry = b"AA01" + struct.pack("<H", len(fields) + 6) + fields
    upload = tmp_path / "upload"
    upload.write_bytes(building.blocks(entry * 50))
    with pytest.raises(TooLarge, match="work"):
        read(upload, limits=Limits(work=300_000))
    records = b"5 a=\n" * 100_000
    upload.write_bytes(_pax(records) * 5)
    with pytest.raises(TooLarge, match="work"):
        read(upload, limits=Limits(work=300_000))


def _pax(records: bytes) -> bytes:
    member = tarfile.TarInfo("pax")
    member.type, member.size = b"x", len(records)
    return member.tobuf(tarfile.GNU_FORMAT) + records + bytes(-len(records) % 512)


def test_each_byte_of_xz_counts_as_if_it_had_the_slowest_filters(tmp_path: Path) -> None:
    upload = costly.xz_filters(tmp_path / "upload", members=4, zeros=MIB, pad=MIB)
    assert read(upload)
    with pytest.raises(TooLarge, match="work"):
        read(upload, limits=Limits(work=4 * 1024 * XZ_KIB))
    blocks = tmp_path / "blocks"
    blocks.write_bytes(building.blocks(bytes(4 * MIB), "x", block=4 * MIB))
    with pytest.raises(TooLarge, match="work"):
        read(blocks, limits=Limits(work=4 * 1024 * XZ_KIB))


# --------------------------------------------------------------------------------------------- entries


def test_more_entries_than_allowed_are_refused_before_the_first_is_written(tmp_path: Path) -> None:
    upload = costly.many_entries(tmp_path / "upload", count=300)
    limits = Limits(entries=200)
    with pytest.raises(TooLarge, match="entries"):
        needed_bytes(upload, limits=limits)
    with pytest.raises(TooLarge, match="entries"):
        read(upload, limits=limits, scratch=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["upload"]


def test_entries_are_work(tmp_path: Path) -> None:
    upload = costly.many_entries(tmp_path / "upload", count=300)
    with pytest.raises(TooLarge, match="work"):
        read(upload, limits=Limits(work=200 * 80))


# --------------------------------------------------------------------------------------------- objects


def test_an_object_of_many_frames_is_a_damaged_object(tmp_path: Path) -> None:
    upload = costly.empty_object_frames(tmp_path / "upload", size=20_000)
    found = read(upload)
    (warning,) = found.warnings
    assert warning.object_id  # that of the one object that was not read
    stored = costly.EMPTY_FRAME * (frames.FRAMES + 2)
    with pytest.raises(TooLarge, match="frames"):
        frames.whole(stored, limit=MIB)
    with pytest.raises(TooLarge, match="frames"):
        list(frames.pieces([stored]))
    assert frames.whole(frames.compress(b"a") * 3 + costly.EMPTY_FRAME, limit=MIB) == b"aaa"


@pytest.mark.parametrize(
    "member",
    [b"[S1:A]", b"K1:aV0:", b"K4:abcdV0:", b"[S1:AK2:_vV0:]"],
    ids=lambda each: each.decode(),
)
def test_members_of_an_object_are_bounded_in_every_form(member: bytes) -> None:
    payload = b"[T[K2:_nV1:A]" + member * 1000 + b"]"
    decode(payload, nodes=1001)
    with pytest.raises(Malformed, match="more than"):
        decode(payload, nodes=900)
    budget = Budget(work=500)
    with pytest.raises(TooLarge, match="work"):
        decode(payload, budget=budget)


def test_an_object_bomb_costs_its_case_the_details(tmp_path: Path) -> None:
    upload = costly.object_bomb(tmp_path / "upload", objects=decoding.NODES + 1)
    (warning,) = read(upload).warnings
    assert warning.object_id  # that of the one object that was not read


TOP = b"[T[K2:_nV1:A]"
SCALAR = b"[S6:StringK2:_vV5:%05d]"
WIDE = "é".encode() * 50 + "😀".encode()
FORMS = {
    "empty nodes": TOP + b"K1:a[S5:Array" + b"[S1:A]" * 20_000 + b"]]",
    "distinct nodes": costly.distinct_nodes(20_000),
    "distinct scalars": TOP + b"".join(b"K5:%05d" % n + SCALAR % n for n in range(20_000)) + b"]",
    "distinct values": TOP + b"".join(b"K5:%05dV5:%05d" % (n, n) for n in range(20_000)) + b"]",
    "texts of an array": TOP + b"K1:a[S5:Array" + b"".join(SCALAR % n for n in range(9000)) + b"]]",
    "elements of a node": TOP + b"".join(SCALAR % n for n in range(9000)) + b"]",
    "wide texts": TOP + b"".join(b"K5:%05dV104:" % n + WIDE for n in range(9000)) + b"]",
    "a wide text": TOP + b"K1:aV900004:" + b"x" * 900_000 + "😀".encode() + b"]",
    "deep nodes": TOP + (b"K1:a[S1:A" * 150 + b"]" * 150) * 100 + b"]",
}


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_an_object_takes_more_memory_than_is_counted(form: str) -> None:
    payload, budget = FORMS[form], Budget()
    _forget_heads()
    tracemalloc.start()
    try:
        node = decode(payload, budget=budget)
        _forget_heads()
        took, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert node
    assert took < budget.loaded
    with pytest.raises(TooLarge, match="loaded_bytes"):
        decode(payload, budget=Budget(loaded=budget.loaded // 2))


def _forget_heads() -> None:
    decoding._scalars.clear()
    decoding._openings.clear()


def test_an_object_that_does_not_fit_is_refused_before_it_is_complete() -> None:
    payload = costly.distinct_nodes(50_000)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="loaded_bytes"):
            decode(payload, budget=Budget(loaded=6 * len(payload)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(payload)


def test_an_object_of_small_members_costs_its_case_the_details(tmp_path: Path) -> None:
    upload = costly.distinct_members(tmp_path / "upload", objects=20_000)
    assert not read(upload).warnings
    (warning,) = read(upload, limits=Limits(loaded_bytes=5_000_000)).warnings
    assert warning.object_id  # that of the one object that was not read


def test_objects_that_were_dropped_take_no_memory(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    cases = [
        case(f"n{n}", bundle.put(summary(f"n{n}", title="x" * 10_000)), testStatus="Failure")
        for n in range(50)
    ]
    found = read(bundle.finish(*cases), limits=Limits(loaded_bytes=250_000))
    assert (len(found.cases), found.warnings) == (50, ())


def test_trees_and_logs_of_actions_do_not_add_up(tmp_path: Path) -> None:
    path, budget = tmp_path / "X.xcresult", Budget()
    write_bundle(path, Plan(cases=300, devices=3))
    assert read_bundle(path, budget=budget).cases
    assert 0 < budget.loaded < 100_000  # the root object; each tree takes 800 kB


def test_runs_that_stay_in_memory_are_bounded(tmp_path: Path) -> None:
    path = Bundle(tmp_path / "X.xcresult").finish(*(case(f"n{number}") for number in range(100)))
    assert len(read(path).cases) == 100
    with pytest.raises(TooLarge, match="held_bytes"):
        read(path, limits=Limits(held_bytes=100_000))


def test_one_wide_character_in_a_text_counts_as_four_bytes_for_each(tmp_path: Path) -> None:
    def failing(name: str, message: str) -> Path:
        bundle = Bundle(tmp_path / name / "X.xcresult")
        failure = typed("ActionTestFailureSummary", message=message)
        long = bundle.put(summary("one", failureSummaries=(failure,)))
        return bundle.finish(case("one", long, testStatus="Failure"))

    limits = Limits(held_bytes=700_000, loaded_bytes=5_000_000)
    assert read(failing("narrow", "x" * 100_000), limits=limits).cases
    with pytest.raises(TooLarge, match="held_bytes"):
        read(failing("wide", "x" * 100_000 + "😀"), limits=limits)


def test_a_spent_budget_ends_the_reading_and_not_one_object(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    cases = [
        case(f"n{number}", bundle.put(summary(f"n{number}")), testStatus="Failure")
        for number in range(50)
    ]
    with pytest.raises(TooLarge, match="work"):
        read(bundle.finish(*cases), limits=Limits(work=2500))


def test_names_around_cases_are_counted_for_each_of_them(tmp_path: Path) -> None:
    inside = group("n" * 10_000, (case(f"n{number}") for number in range(100)))
    path = Bundle(tmp_path / "X.xcresult").finish(inside)
    assert len(read(path).cases) == 100
    with pytest.raises(TooLarge, match="held_bytes"):
        read(path, limits=Limits(held_bytes=800_000))


def test_a_suite_named_with_slashes_is_one_suite(tmp_path: Path) -> None:
    path = Bundle(tmp_path / "X.xcresult").finish(group("a/" * 3000, (case("one"),)))
    found = read(path)
    tracemalloc.start()
    try:
        (module,) = report(found).test_modules
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [suite.name for suite in module.test_suites] == ["a/" * 3000]
    assert peak < 1_000_000  # all beginnings of the name take 9 MB


class Listed(tuple[Quarantined, ...]):
    """Counts how often it is searched."""

    __slots__ = ()
    searched = 0

    def __iter__(self) -> Iterator[Quarantined]:
        Listed.searched += 1
        return super().__iter__()


def test_quarantined_tests_are_not_compared_with_every_case(tmp_path: Path) -> None:
    cases = [case(f"n{number}", testStatus="Failure") for number in range(50)]
    found = read(Bundle(tmp_path / "X.xcresult").finish(*cases))
    listed = Listed([Quarantined("Target", None, f"n{number}") for number in range(50)])
    assert report(found, quarantine=listed).status == "success"
    assert Listed.searched == 1


def test_crash_reports_are_work(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    shots = [
        activity(
            attachments=(
                attachment(bundle.store.put(b"[%d," % n + b"[]," * 9000), filename="a.ips"),
            )
        )
        for n in range(20)
    ]
    path = bundle.finish(
        *(
            case(
                f"n{n}",
                bundle.put(summary(f"n{n}", activitySummaries=(shot,))),
                testStatus="Failure",
            )
            for n, shot in enumerate(shots)
        )
    )
    found = read(path)
    assert read_crashes(Directory(path), found.cases) == {}
    with pytest.raises(TooLarge, match="work"):
        read_crashes(Directory(path), found.cases, budget=Budget(work=10_000))


def test_the_size_of_attachments_is_no_work(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path / "X.xcresult")
    payload = bundle.store.put(bytes(8 * MIB))
    objects = Directory(bundle.finish(case("one")), limits=Limits(work=1000))
    assert sum(map(len, objects.stream(payload))) == 8 * MIB


# ------------------------------------------------------------------------------- databases, property lists


def test_rows_of_a_stuffed_database_are_counted(tmp_path: Path) -> None:
    upload = costly.stuffed_database(tmp_path / "upload", rows=2000)
    (found,) = read(upload).cases
    assert len(found.runs[0].failures) == 2001
    with pytest.raises(TooLarge, match="held_bytes"):
        read(upload, limits=Limits(held_bytes=500_000))
    with pytest.raises(TooLarge, match="work"):
        read(upload, limits=Limits(work=10_000))


def overlapping_plist(lists: int, elements: int) -> bytes:
    """Build a binary property list with many lists that share the bytes of their elements."""
    body = (
        b"bplist00\xaf\x12"
        + struct.pack(">L", lists)
        + b"".join(struct.pack(">H", 1 + number) for number in range(lists))
    )
    shared = len(body)
    body += b"\xaf\x12" + struct.pack(">L", elements)
    body += struct.pack(">H", lists + 1) * elements
    leaf = len(body)
    body += b"\x09"
    table = b"".join(struct.pack(">L", at) for at in (8, *([shared] * lists), leaf))
    trailer = struct.pack(">6xBBQQQ", 4, 2, lists + 2, 0, len(body))
    return body + table + trailer


def test_a_property_list_whose_lists_share_their_elements_is_refused() -> None:
    assert len(plistlib.loads(overlapping_plist(1, 10))[0]) == 10
    assert load_plist(overlapping_plist(1, 10)) == [[True] * 10]
    with pytest.raises(PlistDamaged, match="overlap"):
        load_plist(overlapping_plist(500, 1000))


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, True, "x", b"data", "é" * 300], "b": {"c": list(range(400))}},
        ["same", "same", {"k": "same"}],
        {},
    ],
)
def test_a_real_property_list_never_overlaps(value: object) -> None:
    assert load_plist(plistlib.dumps(value, fmt=plistlib.FMT_BINARY)) == value


# ---------------------------------------------------------------------------------------------- the budget


def test_a_larger_upload_may_take_more_work_and_no_more_memory() -> None:
    small, large = Limits().budget(uploaded=1000), Limits().budget(uploaded=81_000_000)
    large.spend(WORK + 5_000_000)
    with pytest.raises(TooLarge, match="work"):
        small.spend(WORK + 5_000_000)
    assert small.exceeded
    with pytest.raises(TooLarge, match="held_bytes"):
        large.hold(HELD + 1)


@pytest.mark.parametrize(
    ("uploaded", "seconds"), [(0, 30), (40_999_999, 30), (41_000_000, 31), (81_000_000, 71)]
)
def test_the_processor_time_of_a_small_upload_is_bounded(uploaded: int, seconds: int) -> None:
    assert cpu_limit(uploaded) == seconds


def test_a_bundle_of_the_tests_is_far_below_the_budget(tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(building.zipped(building.inside("X.xcresult", building.small_bundle())))
    read(upload, limits=Limits(work=WORK // 50, held_bytes=HELD // 50))
