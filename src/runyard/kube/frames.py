"""Splits the bytes of a watch into events.

A watch is a stream of lines, each a JSON object `{"type": …, "object": …}`, which arrive in
arbitrary chunks. A line counts once it is complete; the beginning of one that never ends is dropped,
because the watch resumes after the last complete event and gets it again.

The envelope is decoded first and the object left as it is: what the object must look like depends on
the envelope's type (a bookmark's object has nothing but a version, and nulls everywhere else).
"""

import msgspec

MAX_LINE = 16 * 1024 * 1024  # ten times what the API stores


class Malformed(Exception):
    """The stream violates the watch protocol."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event with its object still encoded."""

    type: str
    object: msgspec.Raw = msgspec.Raw(b"null")


class _VersionMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str | None = None


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _VersionMeta | None = None


_EVENT = msgspec.json.Decoder(Event)
_VERSIONED = msgspec.json.Decoder(_Versioned)


class Frames:
    """Collects chunks and gives back whole events."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that is not complete: joined once, when it is
        self._size = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events completed by this chunk; `Malformed` if a line is none or never ends."""
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._rest:
            lines[0] = self._take() + lines[0]
        self._keep(rest)
        return [_event(line) for line in lines if line and not line.isspace()]

    def finish(self) -> tuple[list[Event], bool]:
        """What the end of the stream completes, and whether it cut an event in two."""
        rest = self._take()
        if not rest or rest.isspace():
            return [], False
        try:
            return [_event(rest)], False
        except Malformed:
            return [], True

    def _keep(self, part: bytes) -> None:
        if part:
            self._rest.append(part)
            self._size += len(part)
            if self._size > MAX_LINE:
                raise Malformed(f"a watch line has more than {MAX_LINE} bytes")

    def _take(self) -> bytes:
        rest = b"".join(self._rest)
        self._rest.clear()
        self._size = 0
        return rest


def _event(line: bytes) -> Event:
    try:
        return _EVENT.decode(line)
    except msgspec.MsgspecError as error:
        raise Malformed(f"not an event: {error}") from error


def version_of(event: Event) -> str:
    """The resourceVersion of the event's object, `""` if it has none."""
    try:
        meta = _VERSIONED.decode(event.object).metadata
    except msgspec.MsgspecError as error:
        raise Malformed(f"a bookmark without a version: {error}") from error
    return (meta.resource_version or "") if meta is not None else ""
