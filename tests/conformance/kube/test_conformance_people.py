"""Users with the default roles have the same rights on a laptop as in a cluster."""

from tests.conformance.kube.kit import Api, Json

from runyard.wire import names, rights

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ROLES = ("view", "edit", "admin")
RESOURCES = (
    *(("", plural) for plural in ("configmaps", "events", "pods", "secrets", "serviceaccounts")),
    *(
        ("", f"pods/{sub}")
        for sub in ("attach", "eviction", "exec", "log", "portforward", "status")
    ),
    ("", "serviceaccounts/token"),
    ("coordination.k8s.io", "leases"),
    (names.GROUP, names.POOL_PLURAL),
    (names.GROUP, f"{names.POOL_PLURAL}/status"),
    (names.GROUP, f"{names.POOL_PLURAL}/scale"),
    *(("rbac.authorization.k8s.io", plural) for plural in ("roles", "rolebindings")),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
)
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "impersonate")
# What a cluster grants, role by role: r for reading, w for writing, c for creating alone, i for acting as it.
GRANTED = {
    "configmaps": ("r", "rw", "rw"),
    "events": ("r", "rw", "rw"),
    "pods": ("r", "rw", "rw"),
    "secrets": ("", "rw", "rw"),
    "serviceaccounts": ("r", "rwi", "rwi"),
    "pods/attach": ("", "rw", "rw"),
    "pods/eviction": ("", "c", "c"),
    "pods/exec": ("", "rw", "rw"),
    "pods/log": ("r", "r", "r"),
    "pods/portforward": ("", "rw", "rw"),
    "pods/status": ("r", "r", "r"),
    "serviceaccounts/token": ("", "c", "c"),
    "leases": ("", "rw", "rw"),
    "runnerpools": ("r", "rw", "rw"),
    "runnerpools/status": ("r", "r", "r"),
    "runnerpools/scale": ("", "gw", "gw"),
    "roles": ("", "", "rw"),
    "rolebindings": ("", "", "rw"),
    "customresourcedefinitions": ("", "", ""),
}
LETTERS = {
    "r": ("get", "list", "watch"),
    "w": ("create", "update", "patch", "delete"),
    "g": ("get",),
    "c": ("create",),
    "i": ("impersonate",),
}


async def may(api: Api, user: str, verb: str, group: str, what: str) -> bool:
    plural, _, sub = what.partition("/")
    attributes = {
        "namespace": api.space,
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": sub,
    }
    body: Json = {"spec": {"user": user, "resourceAttributes": attributes}}
    result = await api.create(REVIEWS, body)
    return bool(result["status"]["allowed"])


async def test_the_usual_roles_grant_the_same(api: Api) -> None:
    for obj in rights.user_roles():
        answer = await api.call("POST", f"{RBAC}/clusterroles", obj)
        assert answer.status in (201, 409), answer.body
    for role in ROLES:
        binding = {
            "metadata": {"name": role},
            "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": api.own(role), "apiGroup": RBAC.split("/")[2]}],
        }
        await api.create(f"{RBAC}/namespaces/{api.space}/rolebindings", binding)

    async def settled() -> bool | None:
        return await may(api, api.own("admin"), "patch", names.GROUP, names.POOL_PLURAL) or None

    await api.eventually(settled)
    for index, role in enumerate(ROLES):
        for group, what in RESOURCES:
            found = [verb for verb in VERBS if await may(api, api.own(role), verb, group, what)]
            wanted = [verb for letter in GRANTED[what][index] for verb in LETTERS[letter]]
            assert sorted(found) == sorted(wanted), (role, what)
