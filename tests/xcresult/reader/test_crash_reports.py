"""Tests the digest of crash reports, and that a bad report gives None."""

import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.xcresult import fixtures

from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.reader import crashes
from runyard.xcresult.reader.crashes import (
    CrashReport,
    crash_attachment,
    crash_report,
    is_crash_report,
    read_crash,
    read_crashes,
)
from runyard.xcresult.reader.model import Attachment, Case, Run, Status
from runyard.xcresult.reader.objects import ObjectProblem

HEADER = {"app_name": "App", "bug_type": "309"}
PAYLOAD: dict[str, object] = {
    "exception": {
        "type": "EXC_CRASH",
        "signal": "SIGABRT",
        "subtype": "KERN_INVALID_ADDRESS at 0x0",
        "codes": "0x0",
    },
    "faultingThread": 1,
    "threads": [
        {"frames": [{"imageIndex": 0, "imageOffset": 1}]},
        {
            "triggered": True,
            "frames": [
                {
                    "imageIndex": 1,
                    "imageOffset": 2048,
                    "symbol": "Calculator.divide(_:_:)",
                    "symbolLocation": 96,
                    "sourceFile": "Calculator.swift",
                    "sourceLine": 26,
                },
                {"imageIndex": 1, "imageOffset": 4096, "symbol": "main"},
                {"imageIndex": 0, "imageOffset": 512},
                {"imageIndex": 9, "imageOffset": 7},
            ],
        },
    ],
    "usedImages": [{"path": "/usr/lib/dyld", "base": 4096}, {"name": "App"}],
}


def ips(payload: object = PAYLOAD) -> bytes:
    return json.dumps(HEADER).encode() + b"\n" + json.dumps(payload, indent=1).encode()


def test_the_digest_has_cause_and_frames() -> None:
    assert crash_report(ips()) == CrashReport(
        exception_type="EXC_CRASH",
        signal="SIGABRT",
        exception_subtype="KERN_INVALID_ADDRESS at 0x0",
        triggered_thread_frames=(
            "0  App  Calculator.divide(_:_:) (Calculator.swift:26) + 96\n"
            "1  App  main + 4096\n"
            "2  dyld  0x1000 + 512\n"
            "3  ???  ??? + 7"
        ),
    )


def test_the_faulting_thread_is_used_when_no_thread_is_marked() -> None:
    payload = {**PAYLOAD, "threads": [{}, {"frames": [{"symbol": "f", "imageOffset": 3}]}]}
    found = crash_report(ips(payload))
    assert found is not None
    assert found.triggered_thread_frames == "0  ???  f + 3"


def test_a_report_without_its_header_is_read() -> None:
    assert crash_report(json.dumps(PAYLOAD).encode()) == crash_report(ips())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"\xff\xfe",
        b"Incident Identifier: a report of the old kind\n",
        b"{}\n[1]",
        b"{}\n{}",
        b"{}\n" + b"[" * 200_000,
        b"{}\n" + b'{"exception":' * 100_000,
        ips({"exception": [], "threads": {"a": 1}, "usedImages": "x"}),
    ],
)
def test_bytes_that_are_not_a_report_give_none(text: bytes) -> None:
    assert crash_report(text) is None


def test_absurd_values_are_omitted_and_the_others_kept() -> None:
    payload = {
        "exception": {"type": 7, "signal": "SIG\nABRT" + "x" * 10_000},
        "faultingThread": 10**30,
        "threads": [
            {"triggered": True, "frames": [{"imageIndex": -1, "imageOffset": "x"}] * 9_999}
        ],
    }
    found = crash_report(ips(payload))
    assert found is not None
    assert found.exception_type is None
    assert found.signal is not None
    assert len(found.signal) <= crashes.TEXT
    assert "\n" not in found.signal
    assert found.triggered_thread_frames is not None
    assert found.triggered_thread_frames.count("\n") == crashes.FRAMES - 1


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    crash_report(b"{}\n" + data)


class Streamed:
    """A store that streams one payload."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.read_pieces = 0

    def stream(self, object_id: str) -> Iterator[bytes]:
        if object_id != "here":
            raise ObjectProblem(object_id, "is missing")
        for piece in self.pieces:
            self.read_pieces += 1
            yield piece


def test_a_payload_is_read_only_as_far_as_a_report_can_be_long() -> None:
    store = Streamed(*[b"x" * (crashes.BYTES // 4)] * 100)
    assert read_crash(store, Attachment(filename="a.ips", payload_id="here")) is None
    assert store.read_pieces == 5


def test_an_attached_report_is_read_and_a_missing_one_is_none() -> None:
    store = Streamed(ips()[:50], ips()[50:])
    found = read_crash(store, Attachment(filename="a.ips", payload_id="here"))
    assert found == crash_report(ips())
    assert read_crash(store, Attachment(filename="a.ips", payload_id="gone")) is None


def run(status: Status, *attachments: Attachment) -> Run:
    return Run(action=0, configuration="", status=status, attachments=attachments)


def case(*runs: Run) -> Case:
    return Case(
        plan="", target="T", suites=(), identifier="t()", name="t()", status="Failure", runs=runs
    )


def test_the_report_of_a_failure_comes_before_one_that_was_only_there() -> None:
    loose = Attachment(filename="Loose_0_1.ips")
    own = Attachment(filename="0F8FAD5B", name="App-2026.IPS", on_failure=True)
    passed = run("Success", Attachment(filename="x.ips", on_failure=True))
    failed = run("Failure", loose)
    crashed = run("Failure", Attachment(filename="shot.png", on_failure=True), own)
    assert crash_attachment(case(passed, failed, crashed)) == (crashed, own)
    assert crash_attachment(case(passed, failed)) == (failed, loose)
    assert crash_attachment(case(passed)) is None


def test_a_report_under_many_cases_is_read_once() -> None:
    store = Streamed(ips())
    here, gone = (Attachment(filename="a.ips", payload_id=one) for one in ("here", "gone"))
    cases = [case(run("Failure", one)) for one in (here, gone, here, here)]
    assert read_crashes(store, cases) == {"here": crash_report(ips())}
    assert store.read_pieces == 1


def test_only_the_names_make_a_report() -> None:
    assert is_crash_report(Attachment(filename="a.ips"))
    assert not is_crash_report(Attachment(filename="a.ips.txt", name="tips"))


def test_a_digest_can_be_stored_as_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(crash_report(ips())), type=CrashReport)


def test_a_report_that_a_mac_wrote_is_understood() -> None:
    objects = Directory(fixtures.bundle("tuist__test-with-arguments"))
    reports = [
        found
        for object_id in objects.ids()
        if (data := objects.read(object_id)).startswith(b'{"app_name"')
        and (found := crash_report(data)) is not None
    ]
    (found,) = reports
    assert (found.exception_type, found.signal) == ("EXC_BREAKPOINT", "SIGTRAP")
    assert found.triggered_thread_frames is not None
    first, second, *_ = found.triggered_thread_frames.splitlines()
    assert first == "0  libswiftCore.dylib  _assertionFailure(_:_:file:line:flags:) + 152"
    assert second.endswith(" + 226652")
