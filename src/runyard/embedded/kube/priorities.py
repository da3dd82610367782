"""Sets a Pod's priority from its PriorityClass.

Only the two built-in classes exist. A Pod may also set the values of its class.
"""

from runyard.embedded.kube.resources import PODS, Object
from runyard.embedded.kube.status import forbidden

_CLASSES = {
    "": 0,
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_PREEMPTS = "PreemptLowerPriority"


def admitted(pod: Object) -> Object:
    """A new Pod with the priority of its class; a 403 if there is no such class, or the Pod has another value."""
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    named = spec.get("priorityClassName") or ""
    priority = _CLASSES.get(named)
    if priority is None:
        raise forbidden(PODS, name, f"no PriorityClass with name {named} was found")
    given = spec.get("priority")
    if given is not None and given != priority:
        raise forbidden(PODS, name, _unlike(f"the integer value of priority ({given})", priority))
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy != _PREEMPTS:
        what = f"the string value of PreemptionPolicy ({policy})"
        raise forbidden(PODS, name, _unlike(what, _PREEMPTS))
    return {**pod, "spec": {**spec, "priority": priority}} if priority else pod


def _unlike(what: str, computed: object) -> str:
    message = f"priority admission controller computed {computed} from the given PriorityClass name"
    return f"{what} must not be provided in pod spec; {message}"
