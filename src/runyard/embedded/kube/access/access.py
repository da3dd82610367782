"""Combines everything about access for the core: the gate, the roles, the reviews, the certificates.

With `rbac` the roles and bindings that the API holds decide, and the ones that every cluster begins with are
written when they are missing. Without, a function of the caller decides.
"""

from runyard.embedded.kube.access import bootstrap
from runyard.embedded.kube.access.auth import Authorize, User
from runyard.embedded.kube.access.certificates import Certificates
from runyard.embedded.kube.access.gate import GRANTING, Gate
from runyard.embedded.kube.access.rbac import Book, Rbac
from runyard.embedded.kube.access.reviews import Reviews
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Object,
    Resource,
)
from runyard.embedded.kube.status import not_served
from runyard.embedded.kube.storage.store import Event, Store
from runyard.http.messages import Request
from runyard.http.tls import Pair


class Access:
    """Access control of one core."""

    def __init__(
        self, registry: Registry, *, authorize: Authorize, rbac: bool, authority: Pair | None
    ) -> None:
        store, clock = registry.store, registry.clock
        self._registry = registry
        self._rbac = Rbac(lambda: _book(store)) if rbac else None
        if self._rbac is not None:
            authorize = self._rbac.decide
        self._certificates = Certificates(registry, clock=clock, authority=authority)
        self._gate = Gate(
            store, authorize=authorize, rbac=self._rbac, certificates=self._certificates
        )
        self._reviews = Reviews(authorize, self._rbac, now=clock.now)
        registry.admit = self._gate.admit

    def begin(self) -> None:
        """Writes the roles that a new cluster has."""
        if self._rbac is None:
            return
        for resource, obj in bootstrap.objects():
            if self._registry.store.get(resource, "", obj["metadata"]["name"]) is None:
                self._registry.create(resource, obj, namespace="")

    def enter(self, user: User, request: Request) -> None:
        """Authorizes a request; raises 403."""
        self._gate.enter(user, request)

    def review(self, resource: Resource, body: Object) -> Object:
        """Answers a review for the current caller."""
        answer = self._reviews.answer(resource, body, self._gate.user)
        if answer is None:
            raise not_served(resource.plural)
        return answer

    def note(self, event: Event) -> None:
        """Called when something was stored."""
        if event.resource in GRANTING:
            self.forget()
        else:
            self._certificates.note(event)

    def forget(self) -> None:
        """Re-evaluates by what is stored."""
        if self._rbac is not None:
            self._rbac.forget()


def _book(store: Store) -> Book:
    def objects(resource: Resource) -> tuple[Object, ...]:
        return tuple(record.obj for record in store.table(resource).records())

    return Book(
        cluster_roles=objects(CLUSTER_ROLES),
        roles=objects(ROLES),
        cluster_bindings=objects(CLUSTER_ROLE_BINDINGS),
        bindings=objects(ROLE_BINDINGS),
    )
