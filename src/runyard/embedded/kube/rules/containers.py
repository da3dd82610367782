"""Validates the containers of a Pod."""

from runyard.embedded.kube.resources import Object
from runyard.embedded.kube.rules import amounts, environment, handlers, security, volumes
from runyard.embedded.kube.rules.grammar import (
    duplicate,
    invalid,
    invalid_value,
    label,
    port,
    port_name,
    required,
    unsupported,
)
from runyard.embedded.kube.status import Cause

_PULLS = ("Always", "IfNotPresent", "Never")
_MESSAGES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_RESTARTS = ("Always", "Never", "OnFailure")
_RESIZED = ("cpu", "memory")
_RESIZINGS = ("NotRequired", "RestartContainer")
_ALWAYS = "Always"  # of a sidecar: an init container that keeps running


def check(spec: Object, mountable: dict[str, Object], claims: dict[str, None]) -> list[Cause]:
    """Validates the containers of a Pod; names are unique over all lists."""
    causes = [] if spec.get("containers") else [required("spec.containers")]
    names: dict[str, None] = {}
    taken: dict[str, None] = {}
    for index, item in enumerate(spec.get("containers") or ()):
        path = f"spec.containers[{index}]"
        causes += _container(path, item, spec, mountable, claims)
        causes += _name(path, item, names)
        causes += _probes_and_lifecycle(path, item, spec, keeps_running=True)
        if item.get("ports"):
            causes += _host_ports(f"{path}.ports", item, taken)
            causes += _host_network_ports(f"{path}.ports", item, spec)
    for index, item in enumerate(spec.get("initContainers") or ()):
        path = f"spec.initContainers[{index}]"
        causes += _container(path, item, spec, mountable, claims)
        causes += _name(path, item, names)
        causes += _probes_and_lifecycle(
            path, item, spec, keeps_running=item.get("restartPolicy") == _ALWAYS
        )
        if item.get("ports"):
            causes += _host_ports(f"{path}.ports", item, {})
    for index, item in enumerate(spec.get("ephemeralContainers") or ()):
        path = f"spec.ephemeralContainers[{index}]"
        causes += _container(path, item, spec, mountable, claims)
        causes += _name(path, item, names)
    return causes


def _name(path: str, item: Object, names: dict[str, None]) -> list[Cause]:
    name = item.get("name", "")
    if not name:
        return [required(f"{path}.name")]
    if why := label(name):
        return [invalid(f"{path}.name", name, why)]
    if name in names:
        return [duplicate(f"{path}.name", name)]
    names[name] = None
    return []


def _container(
    path: str,
    item: Object,
    spec: Object,
    mountable: dict[str, Object],
    claims: dict[str, None],
) -> list[Cause]:
    causes = _enums(path, item)
    if item.get("ports"):
        causes += _ports(f"{path}.ports", item)
    if item.get("env"):
        causes += environment.variables(f"{path}.env", item["env"])
    if item.get("envFrom"):
        causes += environment.env_from(f"{path}.envFrom", item["envFrom"])
    if item.get("volumeMounts"):
        causes += volumes.mounts(f"{path}.volumeMounts", item, mountable)
    if item.get("volumeDevices"):
        causes += volumes.devices(f"{path}.volumeDevices", item, mountable)
    if item.get("resources"):
        causes += amounts.of_container(f"{path}.resources", item["resources"], claims)
    if item.get("securityContext"):
        causes += security.container(f"{path}.securityContext", item["securityContext"], spec)
    return causes


def _enums(path: str, item: Object) -> list[Cause]:
    causes: list[Cause] = []
    image = item.get("image", "")
    if not image:
        causes.append(required(f"{path}.image"))
    elif image.strip() != image:
        why = "must not have leading or trailing whitespace"
        causes.append(invalid(f"{path}.image", image, why))
    if (pull := item.get("imagePullPolicy", "")) not in _PULLS:
        causes.append(unsupported(f"{path}.imagePullPolicy", pull, _PULLS))
    if (message := item.get("terminationMessagePolicy", "")) not in _MESSAGES:
        causes.append(unsupported(f"{path}.terminationMessagePolicy", message, _MESSAGES))
    restart = item.get("restartPolicy")
    if restart is not None and restart not in _RESTARTS:
        causes.append(unsupported(f"{path}.restartPolicy", restart, _RESTARTS))
    for each in item.get("resizePolicy") or ():
        for key, among in (("resourceName", _RESIZED), ("restartPolicy", _RESIZINGS)):
            if (given := each.get(key, "")) not in among:
                causes.append(unsupported(f"{path}.resizePolicy", given, among))
    return causes


def _probes_and_lifecycle(
    path: str, item: Object, spec: Object, *, keeps_running: bool
) -> list[Cause]:
    given = item.get("lifecycle") is not None or any(key in item for key in handlers.PROBES)
    if not given:
        return []
    grace = spec.get("terminationGracePeriodSeconds") or 0
    return handlers.check(path, item, keeps_running=keeps_running, grace=grace)


# ---- ports


def _ports(path: str, item: Object) -> list[Cause]:
    causes: list[Cause] = []
    names: dict[str, None] = {}
    for index, each in enumerate(item["ports"]):
        here = f"{path}[{index}]"
        if name := each.get("name"):
            if why := port_name(name):
                causes.append(invalid(f"{here}.name", name, why))
            elif name in names:
                causes.append(duplicate(f"{here}.name", name))
            names[name] = None
        if number := each.get("containerPort", 0):
            causes += port(f"{here}.containerPort", number)
        else:
            causes.append(required(f"{here}.containerPort"))
        if number := each.get("hostPort", 0):
            causes += port(f"{here}.hostPort", number)
        if (protocol := each.get("protocol", "TCP")) not in _PROTOCOLS:
            causes.append(unsupported(f"{here}.protocol", protocol, _PROTOCOLS))
    return causes


def _host_ports(path: str, item: Object, taken: dict[str, None]) -> list[Cause]:
    """Host ports that another container of this Pod already uses."""
    causes: list[Cause] = []
    for index, each in enumerate(item["ports"]):
        if not (number := each.get("hostPort")):
            continue
        address = f"{each.get('protocol', 'TCP')}/{each.get('hostIP', '')}/{number}"
        if address in taken:
            causes.append(duplicate(f"{path}[{index}].hostPort", address))
        taken[address] = None
    return causes


def _host_network_ports(path: str, item: Object, spec: Object) -> list[Cause]:
    if not spec.get("hostNetwork"):
        return []
    why = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid_value(f"{path}[{index}].hostPort", each.get("hostPort", 0), why)
        for index, each in enumerate(item["ports"])
        if each.get("hostPort", 0) != each.get("containerPort", 0)
    ]
