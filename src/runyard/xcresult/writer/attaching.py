"""Attachments: their records, and payloads of any size that take neither memory nor, if wished, disk."""

from collections.abc import Iterator

from runyard.xcresult.writer.encoding import Typed, reference, typed
from runyard.xcresult.writer.plan import Formats, Plan
from runyard.xcresult.writer.storing import Store
from runyard.xcresult.writer.texts import Texts

PIECE = 256 * 1024
KINDS = (
    ("public.png", "png", "kXCTAttachmentLegacyScreenImageData", b"\x89PNG\r\n\x1a\n"),
    ("public.plain-text", "txt", "Calculation result", b""),
    ("public.jpeg", "jpeg", "Launch Screen", b"\xff\xd8\xff\xe0"),
    ("public.mpeg-4", "mp4", "kXCTAttachmentScreenRecording", b"\x00\x00\x00\x20ftypisom"),
)


class Attaching:
    """Hands out the attachments of a plan, in order of their numbers, as runs ask for them."""

    def __init__(self, plan: Plan, *, store: Store, texts: Texts) -> None:
        self._plan = plan
        self._formats = Formats(plan.minor)
        self._store = store
        self._texts = texts
        self.payload_ids: list[str] = []
        self._bodies: dict[int, str] = {}

    def share(self, number: int) -> int:
        """How many attachments the case of this number gets."""
        cases = max(1, self._plan.cases)
        return self._plan.attachments // cases + (number < self._plan.attachments % cases)

    def take(self, when: float) -> Typed:
        """The next attachment. Its payload is in the store."""
        number = len(self.payload_ids)
        uniform_type, extension, name, _ = KINDS[number % len(KINDS)]
        payload_id = self._payload(number)
        self.payload_ids.append(payload_id)
        uuid = self._texts.uuid()
        return typed(
            "ActionTestAttachment",
            filename=f"{name}_{number}_{uuid}.{extension}",
            lifetime="keepAlways",
            name=name,
            payloadRef=reference(payload_id),
            payloadSize=self._plan.attachment_bytes,
            timestamp=self._texts.date(when),
            uniformTypeIdentifier=uniform_type,
            uuid=uuid if self._formats.policies else None,
        )

    def _payload(self, number: int) -> str:
        if self._plan.payloads:
            number %= self._plan.payloads
        if number not in self._bodies:
            self._bodies[number] = self._store.put_pieces(lambda: self._pieces(number))
        return self._bodies[number]

    def _pieces(self, number: int) -> Iterator[bytes]:
        """The same bytes whenever they are asked for."""
        left = self._plan.attachment_bytes
        head = KINDS[number % len(KINDS)][3] + f"payload {number}\n".encode()
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
