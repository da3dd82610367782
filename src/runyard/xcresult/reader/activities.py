"""Reads the activities of a run. They are most of a large bundle, so they are mapped on request only; attachments and
failures inside them are always found."""

from runyard.xcresult.reader.attachments import read_attachments
from runyard.xcresult.reader.decode import Node
from runyard.xcresult.reader.fields import children, text, texts, when
from runyard.xcresult.reader.model import Activity, Attachment
from runyard.xcresult.reader.objects import Objects


class Steps:
    """A walk over a run's activities: its attachments, and the activities themselves if wanted."""

    def __init__(self, objects: Objects, *, failures: frozenset[str], wanted: bool) -> None:
        self.attachments: list[Attachment] = []
        self._objects = objects
        self._failures = failures
        self._wanted = wanted

    def walk(self, node: Node, key: str, *, failed: bool = False) -> tuple[Activity, ...]:
        """Read the activities of a member; `failed` means that an enclosing activity failed."""
        if key not in node:
            return ()
        found = [self._one(one, failed=failed) for one in children(node, key)]
        return tuple(one for one in found if one)

    def _one(self, node: Node, *, failed: bool) -> Activity | None:
        failure_ids = texts(node, "failureSummaryIDs") if "failureSummaryIDs" in node else ()
        failed = failed or any(one in self._failures for one in failure_ids)
        attachments = read_attachments(node, objects=self._objects, on_failure=failed)
        self.attachments.extend(attachments)
        inner = self.walk(node, "subactivities", failed=failed)
        if not self._wanted:
            return None
        return Activity(
            title=text(node, "title"),
            kind=text(node, "activityType").partition("activity-type.")[2]
            or text(node, "activityType"),
            uuid=text(node, "uuid"),
            start=when(node, "start"),
            finish=when(node, "finish"),
            attachments=attachments,
            activities=inner,
            failure_ids=failure_ids,
            expected_failure_ids=texts(node, "expectedFailureIDs"),
        )
