"""An object store in dictionaries that does not verify ids."""

from collections.abc import Iterator

from runyard.xcresult.reader.objects import ObjectProblem, Objects


class Memory(Objects):
    """Objects with any text as id."""

    def __init__(
        self,
        payloads: dict[str, bytes] | None = None,
        references: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.payloads = {} if payloads is None else payloads
        self.references = {} if references is None else references

    def has(self, object_id: str) -> bool:
        return object_id in self.payloads

    def read(self, object_id: str) -> bytes:
        if object_id not in self.payloads:
            raise ObjectProblem(object_id, "is missing")
        return self.payloads[object_id]

    def stream(self, object_id: str) -> Iterator[bytes]:
        yield self.read(object_id)

    def refs(self, object_id: str) -> tuple[str, ...]:
        return self.references.get(object_id, ())

    def ids(self) -> Iterator[str]:
        yield from sorted(self.payloads)
