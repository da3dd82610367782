"""Who asks the simulated Kubernetes API: each part as the account that it is shipped with, under its shipped roles.

A line to the API belongs to one part, so whoever sends through it is known without a token. The roles are the
shipped ones, evaluated by the embedded API's own code, and the fence around hosts stands too: a part that lacks a
right fails in the simulation as it would in a cluster. What each part asks for is kept, to compare the roles with.
"""

from collections import Counter

from runyard.embedded.kube.access.auth import ADMIN, Action, Decision, User
from runyard.embedded.kube.access.rbac import Book, Rbac, account_user
from runyard.http.messages import Request
from runyard.wire import names, rights

Need = tuple[
    str, str, str, str, str
]  # part, namespace (empty: cluster-wide), group, resource, verb

_GROUPS = (
    "system:serviceaccounts",
    f"system:serviceaccounts:{names.CONTROLLER_NAMESPACE}",
    "system:authenticated",
)


class Callers:
    """Every part that has a line to the API."""

    def __init__(self) -> None:
        self.asking = ""  # whose request is being handled; empty: whoever looks on
        self.needs: Counter[Need] = Counter()
        self.refused: Counter[Need] = Counter()
        self._holders: dict[str, str] = {}  # account → part
        self._users: dict[str, User] = {"": ADMIN}
        self._parts: dict[str, str] = {}  # user → part
        self._rbac = Rbac(self._book)

    def add(self, client: str) -> None:
        """A line for `server-1`, `operator` or `agent-mini-1`."""
        kind, _, name = client.partition("-")
        part, account = {
            "server": (rights.SERVER, rights.SERVER_ACCOUNT),
            "operator": (rights.OPERATOR, names.CONTROLLER_ACCOUNT),
        }.get(kind, (rights.HOST, rights.host_account(name)))
        user = User(name=account_user(names.CONTROLLER_NAMESPACE, account), groups=_GROUPS)
        self._holders[account] = part
        self._users[client] = user
        self._parts[user.name] = part
        self._rbac.forget()

    def _book(self) -> Book:
        return Book.of(rights.granted(self._holders))

    def who(self, request: Request) -> User:
        """Whoever asks now."""
        return self._users[self.asking]

    def decide(self, user: User, action: Action) -> Decision:
        """By their shipped roles; and remember what they asked for."""
        decision = self._rbac.decide(user, action)
        part = self._parts.get(user.name)
        if part is not None:
            need = (part, action.namespace, action.group, action.resource, action.verb)
            self.needs[need] += 1
            if not decision.allowed:
                self.refused[need] += 1
        return decision


def shipped_needs(part: str) -> set[Need]:
    """What a part's shipped roles allow, in the words of what is recorded."""
    return {
        (part, role["metadata"].get("namespace", ""), group, resource, verb)
        for role in rights.roles(part)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
