"""Finds the attachments of a run, wherever they are in its summary.

They belong to activities of any depth, to failures and to expected failures. An attachment that a failure lists, or
that is inside an activity with a failure of the run, belongs to that failure.
"""

from collections.abc import Iterable

from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.fields import children, reference, text, when, whole
from runyard.xcresult.reader.model import Attachment, ExpectedFailure, Failure
from runyard.xcresult.reader.objects import Objects


def read_attachments(node: Node, *, objects: Objects, on_failure: bool) -> tuple[Attachment, ...]:
    """The attachments that an activity or a failure lists itself."""
    if "attachments" not in node:
        return ()
    return tuple(
        _attachment(one, objects=objects, on_failure=on_failure)
        for one in children(node, "attachments")
    )


def gather(
    *sources: Iterable[Attachment],
    failures: tuple[Failure, ...],
    expected: tuple[ExpectedFailure, ...],
) -> tuple[Attachment, ...]:
    """All attachments of a run, each once; it belongs to a failure if one of its references does."""
    found: dict[tuple[str, str, str, float | None], Attachment] = {}
    listed = [one for failure in failures for one in failure.attachments]
    inside = [one for each in expected if each.failure for one in each.failure.attachments]
    for one in (*(one for source in sources for one in source), *listed, *inside):
        key = (one.uuid, one.filename, one.payload_id, one.timestamp)
        known = found.get(key)
        if known is None or (one.on_failure and not known.on_failure):
            found[key] = one
    return tuple(found.values())


def _attachment(node: Node, *, objects: Objects, on_failure: bool) -> Attachment:
    payload_id = reference(node, "payloadRef")
    return Attachment(
        filename=text(node, "filename"),
        name=text(node, "name"),
        uniform_type=text(node, "uniformTypeIdentifier"),
        payload_id=payload_id,
        size=max(whole(node, "payloadSize"), 0),
        present=objects.has(payload_id) if payload_id else False,
        timestamp=when(node, "timestamp"),
        lifetime=text(node, "lifetime"),
        uuid=text(node, "uuid"),
        on_failure=on_failure,
    )
