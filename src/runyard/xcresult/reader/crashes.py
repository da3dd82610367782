"""Finds crash reports among the attachments of a case, and extracts a digest.

When the process under test dies, the system's report (`.ips`) is attached to the failure that it caused. Its first line
is a header, the rest one JSON object. The digest has the cause and the frames of the crashed thread. A report is
untrusted, and a test has a result with or without it: a bad report gives None, never an error.
"""

from collections.abc import Iterable, Iterator

import msgspec

from runyard.xcresult.errors import XcresultError
from runyard.xcresult.reader.budget import JSON_KIB, Budget
from runyard.xcresult.reader.model import Attachment, Case, Run
from runyard.xcresult.reader.objects import ObjectProblem, Objects

BYTES = 4 * 2**20
"""Larger files are ignored; reports have some hundred kilobytes."""
FRAMES = 512
TEXT = 2000
"""Characters of one value; Swift's symbols can be long."""
SUFFIX = ".ips"


class CrashReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a process died."""

    exception_type: str | None = None
    """EXC_CRASH, EXC_BREAKPOINT, …"""
    signal: str | None = None
    """SIGABRT, SIGTRAP, …"""
    exception_subtype: str | None = None
    triggered_thread_frames: str | None = None
    """One line a frame: `index  image  symbol (File.swift:line) + offset`."""


def crash_attachment(case: Case) -> tuple[Run, Attachment] | None:
    """Find the crash report of a case and its run: the first run with one, preferring attachments of a failure."""
    found = [
        (run, attachment)
        for run in case.runs
        if run.status == "Failure"
        for attachment in run.attachments
        if is_crash_report(attachment)
    ]
    found.sort(key=lambda pair: not pair[1].on_failure)
    return found[0] if found else None


def is_crash_report(attachment: Attachment) -> bool:
    """Whether an attachment is a crash report, by either of its names."""
    return any(name.lower().endswith(SUFFIX) for name in (attachment.filename, attachment.name))


def read_crashes(
    objects: Objects, cases: Iterable[Case], *, budget: Budget | None = None
) -> dict[str, CrashReport]:
    """The digests of the cases' crash reports, by payload id. Each payload is read once."""
    spending = budget or Budget()
    looked: dict[str, CrashReport | None] = {}
    for case in cases:
        there = crash_attachment(case)
        if there is not None and there[1].payload_id not in looked:
            looked[there[1].payload_id] = read_crash(objects, there[1], budget=spending)
    return {payload_id: found for payload_id, found in looked.items() if found is not None}


def read_crash(
    objects: Objects, attachment: Attachment, *, budget: Budget | None = None
) -> CrashReport | None:
    """Read the digest of an attached report; None if its payload is missing, too large or not a report."""
    spending = budget or Budget()
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in objects.stream(attachment.payload_id):
            size += len(piece)
            if size > BYTES:
                return None
            spending.spend_kib(len(piece), JSON_KIB)
            pieces.append(piece)
    except (ObjectProblem, XcresultError):
        if spending.exceeded:
            raise
        return None
    return crash_report(b"".join(pieces))


def crash_report(text: bytes) -> CrashReport | None:
    """Return the digest of a report; None if the bytes are not a report."""
    payload = _payload(text) if len(text) <= BYTES else None
    if payload is None:
        return None
    exception = _dict(payload.get("exception"))
    frames = "\n".join(_frames(payload))
    report = CrashReport(
        exception_type=_text(exception.get("type")) or None,
        signal=_text(exception.get("signal")) or None,
        exception_subtype=_text(exception.get("subtype")) or None,
        triggered_thread_frames=frames or None,
    )
    return report if report != CrashReport() else None


def _payload(text: bytes) -> dict[object, object] | None:
    """The object after the header line; the whole text for a report that lost its header."""
    _, _, rest = text.partition(b"\n")
    for candidate in (rest, text):
        try:
            found = msgspec.json.decode(candidate)
        except (ValueError, RecursionError):  # ValueError: from msgspec, or invalid UTF-8
            continue
        if isinstance(found, dict):
            return found
    return None


def _frames(payload: dict[object, object]) -> Iterator[str]:
    images = [_dict(image) for image in _list(payload.get("usedImages"))]
    for index, frame in enumerate(_list(_triggered(payload).get("frames"))[:FRAMES]):
        yield _frame(index, _dict(frame), images)


def _triggered(payload: dict[object, object]) -> dict[object, object]:
    """The crashed thread: the one marked as such, else the one that the report refers to."""
    threads = [_dict(thread) for thread in _list(payload.get("threads"))]
    for thread in threads:
        if thread.get("triggered") is True:
            return thread
    faulting = _number(payload.get("faultingThread"))
    return threads[faulting] if faulting is not None and faulting < len(threads) else {}


def _frame(index: int, frame: dict[object, object], images: list[dict[object, object]]) -> str:
    number = _number(frame.get("imageIndex"))
    image = images[number] if number is not None and number < len(images) else {}
    name = _text(image.get("name")) or _text(image.get("path")).rpartition("/")[2] or "???"
    symbol = _text(frame.get("symbol"))
    offset = _number(frame.get("symbolLocation")) if symbol else None
    if offset is None:
        offset = _number(frame.get("imageOffset")) or 0
    return f"{index}  {name}  {symbol or _base(image)}{_place(frame)} + {offset}"


def _base(image: dict[object, object]) -> str:
    """The load address of the image, which a symbolicator needs for a frame without a symbol."""
    base = _number(image.get("base"))
    return "???" if base is None else f"0x{base:x}"


def _place(frame: dict[object, object]) -> str:
    file = _text(frame.get("sourceFile"))
    line = _number(frame.get("sourceLine"))
    if not file:
        return ""
    return f" ({file}:{line})" if line else f" ({file})"


def _dict(value: object) -> dict[object, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value is not True and value >= 0 else None


def _text(value: object) -> str:
    """One line of text of bounded length."""
    return " ".join(value[:TEXT].split()) if isinstance(value, str) else ""
