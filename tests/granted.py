"""Rights that the shipped roles grant although one replica of each component in a test does not use them.

The roles are otherwise compared with what the components ask for, both ways. Each entry here says why it is granted.
"""

from runyard.sim.callers import Need
from runyard.wire import names, rights


def _needs(component: str, space: str, group: str, resource: str, *verbs: str) -> frozenset[Need]:
    return frozenset((component, space, group, resource, verb) for verb in verbs)


# Only several replicas of the operator elect a leader.
LEADER_ELECTION = _needs(
    rights.OPERATOR,
    names.CONTROLLER_NAMESPACE,
    "coordination.k8s.io",
    "leases",
    "create",
    "get",
    "patch",
    "update",
)
# A pool names a RuntimeClass; the original controller, which can replace the operator, reads it.
RUNTIME_CLASSES = _needs(
    rights.OPERATOR, "", "node.k8s.io", "runtimeclasses", "get", "list", "watch"
)
# The original server's role, verb by verb: get, list, delete.
ACCOUNTS = _needs(rights.SERVER, names.RUNNERS_NAMESPACE, "", "serviceaccounts", "list")

NOT_RECORDED = LEADER_ELECTION | RUNTIME_CLASSES | ACCOUNTS
