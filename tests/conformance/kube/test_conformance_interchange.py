"""The optional roles for Tuist's own controller and agent: without them a right is refused, with them it is allowed."""

from collections.abc import Iterator, Sequence

from tests.conformance.kube.kit import APPLY, Api, Json
from tests.conformance.kube.test_conformance_pools import path_of, pool

from runyard.wire import install, names

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PLURALS = {
    "ServiceAccount": "/api/v1",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1",
    "Role": "/apis/rbac.authorization.k8s.io/v1",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1",
}
CONTROLLER, AGENT = names.CONTROLLER_ACCOUNT, f"{names.NODE_AGENT}-mini-1"
RUNNERS, RELEASE, EVERYWHERE = "runners", "release", ""
Right = tuple[str, str, str, str, str]  # account, place, group, resource, verb

# What the roles of runyard's own operator and agent do not allow.
FURTHER: tuple[Right, ...] = (
    *(
        (CONTROLLER, RELEASE, "coordination.k8s.io", "leases", verb)
        for verb in ("list", "watch", "delete")
    ),
    *((CONTROLLER, RUNNERS, "tuist.dev", "runnerpools", verb) for verb in ("get", "update")),
    *((CONTROLLER, RUNNERS, "tuist.dev", "runnerpools/status", verb) for verb in ("get", "update")),
    *((CONTROLLER, RELEASE, "", "events", verb) for verb in ("create", "patch")),
    (CONTROLLER, RUNNERS, "", "pods/log", "get"),
    *((AGENT, EVERYWHERE, "", "nodes", verb) for verb in ("list", "watch", "update")),
    *((AGENT, EVERYWHERE, "", "nodes/status", verb) for verb in ("get", "update")),
)
SHARED: tuple[Right, ...] = (
    *(
        (CONTROLLER, RELEASE, "coordination.k8s.io", "leases", verb)
        for verb in ("create", "get", "update")
    ),
    *(
        (CONTROLLER, EVERYWHERE, "node.k8s.io", "runtimeclasses", verb)
        for verb in ("get", "list", "watch")
    ),
    *(
        (CONTROLLER, RUNNERS, "tuist.dev", "runnerpools", verb)
        for verb in ("list", "watch", "patch")
    ),
    *((AGENT, EVERYWHERE, "", "nodes", verb) for verb in ("create", "get", "patch")),
)
NEVER: tuple[Right, ...] = (
    (CONTROLLER, RUNNERS, "coordination.k8s.io", "leases", "update"),
    (CONTROLLER, RELEASE, "", "secrets", "get"),
    (CONTROLLER, EVERYWHERE, "", "nodes", "update"),
    (AGENT, EVERYWHERE, "", "nodes", "delete"),
    (AGENT, EVERYWHERE, "", "secrets", "list"),
    (AGENT, RELEASE, "coordination.k8s.io", "leases", "update"),
)


class Installation:
    """The objects of components in namespaces of this script alone."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._release = api.own("release")
        self._made: list[str] = []

    def user(self, account: str) -> tuple[tuple[str, str], ...]:
        """The headers of a request in the name of an account."""
        return (("impersonate-user", f"system:serviceaccount:{self._release}:{account}"),)

    async def prepare(self) -> None:
        space = {"metadata": {"name": self._release}}
        await self._api.create("/api/v1/namespaces", space)
        self._made.append(f"/api/v1/namespaces/{self._release}")

    async def apply(self, *components: str) -> None:
        for path, obj in self._objects(components):
            answer = await self._api.call(
                "PATCH", path, obj, kind=APPLY, fieldManager="script", force="true"
            )
            assert answer.status in (200, 201), answer.body
            if answer.status == 201 and "namespace" not in obj["metadata"]:
                self._made.append(path)

    def _objects(self, components: Sequence[str]) -> Iterator[tuple[str, Json]]:
        found = install.objects(
            components,
            hosts=["mini-1"],
            namespace=self._api.space,
            controller_namespace=self._release,
        )
        for obj in found:
            if (base := PLURALS.get(obj["kind"])) is None:
                continue
            space = obj["metadata"].get("namespace", "")
            if space == names.NODE_LEASE_NAMESPACE:
                continue  # shared with other scripts
            inside = f"/namespaces/{space}" if space else ""
            yield f"{base}{inside}/{obj['kind'].lower()}s/{obj['metadata']['name']}", obj

    async def remove(self) -> None:
        for path in reversed(self._made):
            await self._api.call("DELETE", path)

    async def allowed(self, right: Right) -> bool:
        account, place, group, resource, verb = right
        plural, _, sub = resource.partition("/")
        where = {RUNNERS: self._api.space, RELEASE: self._release}.get(place, "")
        what = {"verb": verb, "group": group, "resource": plural, "subresource": sub}
        review = {"spec": {"resourceAttributes": {**what, "namespace": where}}}
        headers = self.user(account)
        answer = await self._api.create(REVIEWS, review, headers=headers)
        found: bool = answer["status"]["allowed"]
        return found

    async def which(self, rights: Sequence[Right], *, allowed: bool) -> list[Right]:
        return [right for right in rights if await self.allowed(right) is allowed]


async def test_rights_of_the_original_components_come_with_the_optional_roles_only(
    api: Api,
) -> None:
    path = await path_of(api)
    made = await api.create(path, pool("mac"))
    placed = Installation(api)
    await placed.prepare()
    try:
        assert await placed.which((*FURTHER, *SHARED, *NEVER), allowed=True) == []
        await placed.apply(install.OPERATOR, install.AGENT)

        async def usual() -> bool | None:
            return await placed.which(SHARED, allowed=False) == [] or None

        await api.eventually(usual)
        assert await placed.which((*FURTHER, *NEVER), allowed=True) == []
        who = placed.user(CONTROLLER)
        answer = await api.call("PUT", f"{path}/mac", made, headers=who)
        assert answer.status == 403

        await placed.apply(install.INTERCHANGE)

        async def further() -> bool | None:
            return await placed.which((*FURTHER, *SHARED), allowed=False) == [] or None

        await api.eventually(further)
        assert await placed.which(NEVER, allowed=True) == []
        replaced = await api.ok("PUT", f"{path}/mac", made, headers=who)
        await api.ok("PUT", f"{path}/mac/status", replaced, headers=who)
        await api.ok("GET", "/api/v1/nodes", headers=placed.user(AGENT))
    finally:
        await placed.remove()


async def test_the_optional_roles_are_enough_for_what_they_name(api: Api) -> None:
    await path_of(api)
    placed = Installation(api)
    await placed.prepare()
    try:
        await placed.apply(install.INTERCHANGE)

        async def granted() -> bool | None:
            return await placed.which((*FURTHER, *SHARED), allowed=False) == [] or None

        await api.eventually(granted)
    finally:
        await placed.remove()
