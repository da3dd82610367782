"""Authenticates and authorizes the components at the simulated Kubernetes API, with their shipped roles.

A link to the API belongs to one component, so the sender is known without a token. The roles are the shipped ones,
evaluated by the embedded API's code, and the host fence is active too: a component that lacks a right fails in the
simulation as it would in a cluster. The rights that each component uses are recorded, to compare the roles with.
"""

from collections import Counter

from runyard.embedded.kube.access.auth import ADMIN, Action, Decision, User
from runyard.embedded.kube.access.rbac import Rbac, RbacObjects, account_user
from runyard.http.messages import Request
from runyard.wire import names, rights

Need = tuple[
    str, str, str, str, str
]  # component, namespace (empty: cluster-wide), group, resource, verb

_GROUPS = (
    "system:serviceaccounts",
    f"system:serviceaccounts:{names.CONTROLLER_NAMESPACE}",
    "system:authenticated",
)


class Callers:
    """Every component that has a link to the API."""

    def __init__(self) -> None:
        self.asking = (
            ""  # the component whose request is being handled; empty: the invariant checks
        )
        self.needs: Counter[Need] = Counter()
        self.refused: Counter[Need] = Counter()
        self._holders: dict[str, str] = {}  # account → component
        self._users: dict[str, User] = {"": ADMIN}
        self._components: dict[str, str] = {}  # user → component
        self._rbac = Rbac(self._book)

    def add(self, client: str) -> None:
        """Adds a link for `server-1`, `operator` or `agent-mini-1`."""
        kind, _, name = client.partition("-")
        component, account = {
            "server": (rights.SERVER, rights.SERVER_ACCOUNT),
            "operator": (rights.OPERATOR, names.CONTROLLER_ACCOUNT),
        }.get(kind, (rights.HOST, rights.host_account(name)))
        user = User(name=account_user(names.CONTROLLER_NAMESPACE, account), groups=_GROUPS)
        self._holders[account] = component
        self._users[client] = user
        self._components[user.name] = component
        self._rbac.forget()

    def _book(self) -> RbacObjects:
        return RbacObjects.of(rights.granted(self._holders))

    def who(self, request: Request) -> User:
        """The user of the current request."""
        return self._users[self.asking]

    def decide(self, user: User, action: Action) -> Decision:
        """Authorizes by the shipped roles, and records the request."""
        decision = self._rbac.decide(user, action)
        component = self._components.get(user.name)
        if component is not None:
            need = (component, action.namespace, action.group, action.resource, action.verb)
            self.needs[need] += 1
            if not decision.allowed:
                self.refused[need] += 1
        return decision


def shipped_needs(component: str) -> set[Need]:
    """What a component's shipped roles allow, in the form that is recorded."""
    return {
        (component, role["metadata"].get("namespace", ""), group, resource, verb)
        for role in rights.roles(component)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
