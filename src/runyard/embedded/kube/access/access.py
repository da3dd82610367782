"""Combines access control for the core: authorization, roles, reviews and certificate requests.

With `rbac` the stored roles and bindings decide, and missing default ones are created. Without it, the given
`authorize` function decides.
"""

from runyard.embedded.kube.access import bootstrap
from runyard.embedded.kube.access.auth import Authorize, User
from runyard.embedded.kube.access.certificates import Certificates
from runyard.embedded.kube.access.gate import GRANTING, Gate
from runyard.embedded.kube.access.rbac import Rbac, RbacObjects
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
        self._rbac = Rbac(lambda: _rbac_objects(store)) if rbac else None
        if self._rbac is not None:
            authorize = self._rbac.decide
        self._certificates = Certificates(registry, clock=clock, authority=authority)
        self._gate = Gate(
            store, authorize=authorize, rbac=self._rbac, certificates=self._certificates
        )
        self._reviews = Reviews(authorize, self._rbac, now=clock.now)
        registry.admit = self._gate.admit

    def create_defaults(self) -> None:
        """Creates the missing default roles and bindings."""
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

    def on_event(self, event: Event) -> None:
        """Reacts to one commit."""
        if event.resource in GRANTING:
            self.forget()
        else:
            self._certificates.on_event(event)

    def forget(self) -> None:
        """Drops cached decisions."""
        if self._rbac is not None:
            self._rbac.forget()


def _rbac_objects(store: Store) -> RbacObjects:
    def objects(resource: Resource) -> tuple[Object, ...]:
        return tuple(record.obj for record in store.table(resource).records())

    return RbacObjects(
        cluster_roles=objects(CLUSTER_ROLES),
        roles=objects(ROLES),
        cluster_bindings=objects(CLUSTER_ROLE_BINDINGS),
        bindings=objects(ROLE_BINDINGS),
    )
