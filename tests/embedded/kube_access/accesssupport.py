"""A core with roles enforced, and requests of several users."""

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from runyard.embedded.kube.access.auth import User
from runyard.embedded.kube.core import KubeCore, Security
from runyard.http.messages import Request, Response
from runyard.http.tls import Pair
from runyard.sim.clock import VirtualClock
from runyard.sim.loop import run_virtual

T = TypeVar("T")

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SPACE = "tuist-runners"
ROLES = f"{RBAC}/namespaces/{SPACE}/roles"
BINDINGS = f"{RBAC}/namespaces/{SPACE}/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
ACCOUNTS = f"/api/v1/namespaces/{SPACE}/serviceaccounts"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"

BOB = ("bob", "devs")
NOBODY = ("nobody",)
BOSS = ("boss", "system:masters")


class RbacHarness:
    """A core that authenticates by a header and authorizes by roles."""

    def __init__(self, *, authority: Pair | None = None, roles: bool = True) -> None:
        self.clock = VirtualClock()
        self.core = KubeCore(
            clock=self.clock,
            rng=random.Random(4),
            security=Security(rbac=roles, authority=authority),
        )
        self.core.guard(_from_header)

    async def send(
        self,
        caller: tuple[str, ...],
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        headers: tuple[tuple[str, str], ...] = (),
        **query: str,
    ) -> Response:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        )
        request = Request(
            method=method,
            path=path,
            query=tuple(query.items()),
            headers=(("x-who", "/".join(caller)), ("content-type", kind), *headers),
            body=raw,
        )
        answer = await self.core.handle(request)
        assert isinstance(answer, Response), answer
        assert answer.status != 500, answer.body
        return answer

    async def ok(
        self, caller: tuple[str, ...], method: str, path: str, *body: Any, **more: Any
    ) -> Any:
        answer = await self.send(caller, method, path, *body, **more)
        assert answer.status in (200, 201), answer.body
        return answer.json()

    async def refused(
        self, caller: tuple[str, ...], method: str, path: str, *body: Any, **more: Any
    ) -> str:
        """The message of a 403."""
        answer = await self.send(caller, method, path, *body, **more)
        status = answer.json()
        assert (answer.status, status.get("reason")) == (403, "Forbidden"), answer.body
        return str(status["message"])

    async def role(self, name: str, *rules: dict[str, Any], where: str = ROLES) -> None:
        await self.ok(BOSS, "POST", where, {"metadata": {"name": name}, "rules": list(rules)})

    async def bind(
        self, name: str, *subjects: dict[str, str], role: str = "Role", where: str = BINDINGS
    ) -> None:
        body = {
            "metadata": {"name": name},
            "roleRef": {"kind": role, "name": name},
            "subjects": list(subjects),
        }
        await self.ok(BOSS, "POST", where, body)

    async def grant(self, caller: str, *rules: dict[str, Any]) -> None:
        """Grants rights in the namespace of the tests."""
        await self.role(f"of-{caller}", *rules)
        await self.bind(f"of-{caller}", user(caller))

    async def grant_cluster_wide(self, caller: str, *rules: dict[str, Any]) -> None:
        await self.role(f"of-{caller}", *rules, where=CLUSTER_ROLES)
        await self.bind(f"of-{caller}", user(caller), role="ClusterRole", where=CLUSTER_BINDINGS)


def _from_header(request: Request) -> User | None:
    name, *groups = request.header("x-who").split("/")
    return User(name=name, groups=(*groups, "system:authenticated"))


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


def group(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": name}


def rule(resources: str, verbs: str, *, groups: str = "", **more: list[str]) -> dict[str, Any]:
    return {
        "apiGroups": [groups],
        "resources": resources.split(),
        "verbs": verbs.split(),
        **more,
    }


def play(scenario: Callable[[RbacHarness], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        harness = RbacHarness(**options)
        result = await scenario(harness)
        assert not harness.core.failures
        return result

    return run_virtual(main())


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    container = {"name": "runner", "image": "vm:1"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
