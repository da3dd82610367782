"""Lists the kinds that a server serves: the built-in ones and the defined custom resources.

Each store has one catalogue. Rows of custom resources are added and removed with their definitions
(`controllers.definitions`); a path is parsed against the current rows, and the result is cached until they change.

Invariants:
- At most one row per group, version and plural; `served` is in a fixed order: built-in rows as written, then custom
  rows in the order in which they were established.
- `key` of a row names its table; no two rows have the same.
"""

from runyard.embedded.kube import routes
from runyard.embedded.kube.resources import BUILT_IN, Resource
from runyard.embedded.kube.routes import Target

_CACHE_SIZE = 16384
_LONGEST = 512  # the longest path that is cached


class Catalogue:
    """All rows of a server."""

    def __init__(self) -> None:
        self.served: tuple[Resource, ...] = ()
        self.stored: tuple[Resource, ...] = ()
        self.groups: tuple[tuple[str, str], ...] = ()
        self.by_kind: dict[tuple[str, str], Resource] = {}
        self.edition = 0  # counts the changes, for caches of documents made from the rows
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._custom: dict[str, Resource] = {}
        self._targets: dict[str, Target] = {}
        self._rebuild()

    def serve(self, resource: Resource) -> None:
        """Serves a custom resource, in place of the row with its key."""
        self._custom[resource.key] = resource
        self._rebuild()

    def withdraw(self, key: str) -> Resource | None:
        """Stops serving it."""
        gone = self._custom.pop(key, None)
        self._rebuild()
        return gone

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The row at that path."""
        return self._by_path.get((group, version, plural))

    def custom(self, key: str) -> Resource | None:
        """The row of a custom resource by its key."""
        return self._custom.get(key)

    def parse(self, path: str) -> Target:
        """The target of a path; raises 404 for an unknown path, 501 for a known one that is not served."""
        target = self._targets.get(path)
        if target is None:
            target = routes.parse(path, self._by_path, self._groups_served)
            if len(path) <= _LONGEST:
                if len(self._targets) >= _CACHE_SIZE:
                    self._targets.clear()
                self._targets[path] = target
        return target

    def _rebuild(self) -> None:
        self.edition += 1
        self.served = (*BUILT_IN, *self._custom.values())
        self.stored = tuple(item for item in self.served if item.stored)
        self.groups = tuple(dict.fromkeys((item.group, item.version) for item in self.served))
        self.by_kind = {(item.api_version, item.kind): item for item in self.stored}
        self._by_path = {(item.group, item.version, item.plural): item for item in self.served}
        self._groups_served = dict.fromkeys(item.group for item in self.served)
        self._targets.clear()
