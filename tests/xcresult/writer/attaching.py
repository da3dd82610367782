"""Writes attachments: their records, and payloads of any size with bounded memory and, if requested, little disk."""

from collections.abc import Iterator

import msgspec
from tests.xcresult.writer.encoding import Typed, reference, typed
from tests.xcresult.writer.plan import Formats, Plan
from tests.xcresult.writer.storing import Store
from tests.xcresult.writer.tally import Tally
from tests.xcresult.writer.texts import Texts

PIECE = 256 * 1024


class Kind(msgspec.Struct, frozen=True):
    """A kind of attachment, and how its payload begins."""

    uniform_type: str
    extension: str
    name: str
    head: bytes = b""


KINDS = (
    Kind("public.png", "png", "kXCTAttachmentLegacyScreenImageData", b"\x89PNG\r\n\x1a\n"),
    Kind("public.plain-text", "txt", "Calculation result"),
    Kind("public.jpeg", "jpeg", "Launch Screen", b"\xff\xd8\xff\xe0"),
    Kind("public.mpeg-4", "mp4", "kXCTAttachmentScreenRecording", b"\x00\x00\x00\x20ftypisom"),
)
CRASH = Kind("com.apple.ips", "ips", "Crash report")


def crash_report(number: int) -> bytes:
    """What the system writes when a process dies: a header line, then the report."""
    frames = [
        {
            "imageIndex": 0,
            "imageOffset": 4096,
            "symbol": "Basket.total.getter",
            "sourceLine": number,
        },
        {"imageIndex": 1, "imageOffset": 64},
    ]
    body = {
        "exception": {
            "type": "EXC_BREAKPOINT",
            "signal": "SIGTRAP",
            "subtype": "KERN_INVALID_ADDRESS",
        },
        "threads": [{"frames": []}, {"triggered": True, "frames": frames}],
        "usedImages": [{"name": "Shop"}, {"path": "/usr/lib/swift/libswiftCore.dylib"}],
    }
    header = {"app_name": "Shop", "bug_type": "309", "incident_id": f"{number:08}"}
    return msgspec.json.encode(header) + b"\n" + msgspec.json.encode(body)


class Attaching:
    """Assigns the attachments of a plan to runs, in order of their numbers."""

    def __init__(self, plan: Plan, *, store: Store, texts: Texts, tally: Tally) -> None:
        self._plan = plan
        self._formats = Formats(plan.minor)
        self._store = store
        self._texts = texts
        self._tally = tally
        self._crashes = 0
        self.payload_ids: list[str] = []
        self._bodies: dict[int, str] = {}

    def share(self, number: int) -> int:
        """The number of attachments of the case with this number."""
        cases = max(1, self._plan.cases)
        return self._plan.attachments // cases + (number < self._plan.attachments % cases)

    def take(self, when: float) -> Typed:
        """Write the next attachment. Its payload is in the store, unless the plan omits it."""
        number = len(self.payload_ids)
        size = self._plan.attachment_bytes
        if number < self._plan.lost_payloads:
            payload_id = self._store.put(f"lost payload {number}".encode())
            self._store.lose(payload_id)
        else:
            payload_id = self._payload(number)
            self._tally.attachments_present += 1
            self._tally.attachment_bytes += size
        self.payload_ids.append(payload_id)
        return self._record(KINDS[number % len(KINDS)], payload_id, size=size, when=when)

    def crash(self, when: float) -> tuple[Typed, ...]:
        """Write the next crash report, if there are any left."""
        if self._crashes >= self._plan.crashes:
            return ()
        self._crashes += 1
        report = crash_report(self._crashes)
        payload_id = self._store.put(report)
        self._tally.attachments_present += 1
        self._tally.attachment_bytes += len(report)
        return (self._record(CRASH, payload_id, size=len(report), when=when),)

    def _record(self, kind: Kind, payload_id: str, *, size: int, when: float) -> Typed:
        uuid = self._texts.uuid()
        self._tally.attachments += 1
        return typed(
            "ActionTestAttachment",
            filename=f"{kind.name}_{self._tally.attachments}_{uuid}.{kind.extension}",
            lifetime="keepAlways",
            name=kind.name,
            payloadRef=reference(payload_id),
            payloadSize=size,
            timestamp=self._texts.date(when),
            uniformTypeIdentifier=kind.uniform_type,
            uuid=uuid if self._formats.policies else None,
        )

    def _payload(self, number: int) -> str:
        if self._plan.payloads:
            number %= self._plan.payloads
        if number not in self._bodies:
            self._bodies[number] = self._store.put_pieces(lambda: self._pieces(number))
        return self._bodies[number]

    def _pieces(self, number: int) -> Iterator[bytes]:
        """Yield the payload; always the same bytes."""
        left = self._plan.attachment_bytes
        head = KINDS[number % len(KINDS)].head + f"payload {number}\n".encode()
        texts = Texts(self._plan.seed + number)
        block = b""
        if self._plan.compressible:
            line = f"{texts.uuid()} a line of what the test saw\n".encode()
            block = (line * (PIECE // len(line) + 1))[:PIECE]
        while left > 0:
            piece = head + (block or texts.chance.randbytes(PIECE))
            head = b""
            yield piece[:left]
            left -= min(left, len(piece))
