"""Decides what `runyard pool create` sends: the fields of a RunnerPool, and how they differ from an existing one.

What is not given is taken from the hosts where they agree (their group, operating system and runtime, and a slot's
share of their CPU and memory); for the rest the defaults of the definition apply. All functions are pure.

Invariants:
- Of an existing pool only the fields that were given are compared and changed; the others keep their values.
- Whether a host can run a pool is decided by the Pod that the operator would create, not by a second rule.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from runyard.cli.options import BadSetting
from runyard.dispatch.pools import view_of
from runyard.embedded.kube.schema.quantity import milli
from runyard.kube.objects import Meta, Node, RunnerPool
from runyard.pools.plans.template import pod
from runyard.pools.projection import healthy, project_pool
from runyard.pools.settings import Settings
from runyard.wire import names
from runyard.wire.runnerpool import PoolSpec

Spec = dict[str, Any]
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")
_OS = {"darwin": "macOS", "linux": "Linux"}
_ARCH = {"amd64": "X64", "arm64": "ARM64"}
_MIB = 1024 * 1024


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was given on the command line; None was not given."""

    image: str | None = None
    replicas: int | None = None
    labels: tuple[str, ...] | None = None
    dispatch_label: str | None = None
    fleet: str | None = None
    os: str | None = None
    runtime_class: str | None = None
    cpu_milli: int | None = None
    memory_mb: int | None = None
    idle_timeout: int | None = None
    max_concurrent_percent: int | None = None
    max_starting: int | None = None
    start_timeout: int | None = None


class Difference(msgspec.Struct, frozen=True):
    """A field of an existing pool that has another value."""

    field: str
    source: str
    target: str

    def line(self) -> str:
        """`replicas 2 → 4`."""
        return f"{self.field} {self.source} → {self.target}"


def given_fields(wanted: Wanted) -> Spec:
    """The fields of the spec that were given."""
    flat = {
        "image": wanted.image,
        "replicas": wanted.replicas,
        "runnerLabels": None if wanted.labels is None else [*wanted.labels],
        "dispatchLabel": wanted.dispatch_label,
        "fleetSelector": wanted.fleet,
        "os": wanted.os,
        "runtimeClass": wanted.runtime_class,
        "podCPUMilli": wanted.cpu_milli,
        "podMemoryMB": wanted.memory_mb,
        "idleTimeoutSeconds": wanted.idle_timeout,
    }
    provisioning = {
        "maxConcurrentPerFleetSelector": wanted.max_starting,
        "startTimeoutSeconds": wanted.start_timeout,
    }
    rollout = {"maxConcurrentPercent": wanted.max_concurrent_percent}
    nested = {"provisioning": _given(provisioning), "rollout": _given(rollout)}
    return _given(flat) | {key: value for key, value in nested.items() if value}


def _given(fields: Mapping[str, Any]) -> Spec:
    return {key: value for key, value in fields.items() if value is not None}


def new_spec(name: str, wanted: Wanted, nodes: tuple[Node, ...]) -> Spec:
    """The whole spec of a new pool; `BadSetting` if something is missing that the hosts do not tell."""
    if wanted.image is None:
        raise BadSetting(f"a new pool needs an image: runyard pool create {name} --image REF")
    fleet = wanted.fleet or _fleet(nodes, wanted.os)
    hosts = tuple(node for node in nodes if _fleet_of(node) == fleet)
    os = wanted.os or _os(hosts, fleet)
    spec = {
        "image": wanted.image,
        "fleetSelector": fleet,
        "dispatchLabel": name,
        "runnerLabels": [*_labels(os, hosts)],
        "replicas": 1,
        "os": os,
        **_given({"runtimeClass": _runtime_class(os, hosts)}),
        **_slot(hosts),
    }
    whole = spec | given_fields(wanted)
    dispatch = whole["dispatchLabel"].lower()
    whole["runnerLabels"] = [each for each in whole["runnerLabels"] if each.lower() != dispatch]
    return whole


def _hosts(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(node for node in nodes if _fleet_of(node))


def _fleet_of(node: Node) -> str:
    labels = node.metadata.labels
    return labels.get(names.NODE_FLEET) or labels.get(names.NODE_LINUX_POOL, "")


def _fleet(nodes: tuple[Node, ...], os: str | None) -> str:
    fits = [node for node in _hosts(nodes) if os in (None, node.metadata.labels.get(names.NODE_OS))]
    found = sorted({_fleet_of(node) for node in fits})
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadSetting("no host has joined whose group could be taken. Give --fleet GROUP")
    raise BadSetting(
        f"the hosts are in several groups: {', '.join(found)}. Give --fleet one of them"
    )


def _os(hosts: tuple[Node, ...], fleet: str) -> str:
    found = {node.metadata.labels.get(names.NODE_OS, "") for node in hosts} & {*_OS}
    if len(found) == 1:
        return found.pop()
    if hosts:
        raise BadSetting(f"the hosts of {fleet} have several operating systems. Give --os")
    raise BadSetting(f"no host of {fleet} has joined that tells the operating system. Give --os")


def _runtime_class(os: str, hosts: tuple[Node, ...]) -> str | None:
    """The class of the runtime that all hosts have; none for the runtime that the operating system implies."""
    found = {node.metadata.labels.get(names.NODE_RUNTIME, "") for node in hosts} - {""}
    if len(found) > 1:
        raise BadSetting(
            f"the hosts have several runtimes: {', '.join(sorted(found))}. Give --runtime"
        )
    runtime = found.pop() if found else ""
    implied = names.NODE_RUNTIME_TART if os == "darwin" else ""
    return None if runtime in ("", implied) else names.RUNTIME_CLASS_PREFIX + runtime


def _labels(os: str, hosts: tuple[Node, ...]) -> tuple[str, ...]:
    found = {node.metadata.labels.get(names.NODE_ARCH, "") for node in hosts}
    arch = _ARCH.get(found.pop(), "") if len(found) == 1 else ""
    return ("self-hosted", _OS[os], *filter(None, (arch,)))


def _slot(hosts: tuple[Node, ...]) -> Spec:
    """A slot's share of the smallest host; nothing if no host says how large it is."""
    sizes = [_size(node) for node in hosts]
    shares = [
        (cpu // pods, memory // pods) for cpu, memory, pods in sizes if cpu and memory and pods
    ]
    if not shares or len(shares) != len(hosts):
        return {}
    return {
        "podCPUMilli": min(cpu for cpu, _ in shares),
        "podMemoryMB": min(memory for _, memory in shares),
    }


def _size(node: Node) -> tuple[int, int, int]:
    """Thousandths of cores, MiB and slots; zero is unknown."""
    has = node.status.allocatable
    return (
        _amount(has.get("cpu", "")),
        _amount(has.get("memory", "")) // 1000 // _MIB,
        _amount(has.get("pods", "")) // 1000,
    )


def _amount(text: str) -> int:
    try:
        return milli(text)
    except ValueError:
        return 0


def manifest(name: str, namespace: str, spec: Spec) -> dict[str, Any]:
    """The whole RunnerPool."""
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.POOL_KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def differences(pool: RunnerPool, wanted: Wanted) -> tuple[Difference, ...]:
    """The fields that were given and have other values in the pool."""
    current, target = _flat(_as_sent(pool.spec)), _flat(given_fields(wanted))
    if wanted.runtime_class is not None and _same_runtime(pool.spec, wanted.runtime_class):
        target.pop("runtimeClass")
    return tuple(
        Difference(field, _shown(current.get(field)), _shown(value))
        for field, value in target.items()
        if current.get(field) != value
    )


def _same_runtime(spec: PoolSpec, runtime_class: str) -> bool:
    """Whether another name of the class means the same agents: darwin implies tart."""
    other = msgspec.structs.replace(spec, runtime_class=runtime_class)
    return bool(spec.agent_runtime) and spec.agent_runtime == other.agent_runtime


def merged(pool: RunnerPool, wanted: Wanted) -> Spec:
    """The pool's spec with the given fields."""
    spec: Spec = _as_sent(pool.spec)
    for key, value in given_fields(wanted).items():
        spec[key] = spec[key] | value if isinstance(value, dict) else value
    return spec


def _as_sent(spec: PoolSpec) -> Spec:
    sent: Spec = msgspec.to_builtins(spec)
    sent["runnerLabels"] = [*spec.runner_labels]
    return {key: value for key, value in sent.items() if value not in ("", (), [])}


def _flat(fields: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in fields.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return found


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(value) + "]"
    return "(none)" if value in (None, "") else str(value)


def as_pool(name: str, namespace: str, spec: Spec) -> RunnerPool:
    """The spec as the operator and the matcher read it."""
    return RunnerPool(metadata=Meta(name, namespace), spec=msgspec.convert(spec, PoolSpec))


def problems(
    pool: RunnerPool, others: tuple[RunnerPool, ...], nodes: tuple[Node, ...]
) -> list[str]:
    """What will keep the pool's runners from starting, or its jobs from finding it; each with its fix."""
    found = [_no_host(pool, nodes)]
    wanted = sum(each.spec.replicas for each in (pool, *others) if _group(each) == _group(pool))
    slots = sum(_size(node)[2] for node in nodes if _selects(pool, node))
    if slots and wanted > slots:
        found.append(
            f"the hosts of {pool.spec.fleet_selector} have {slots} slots, and their pools ask for {wanted} runners:"
            " some wait until a slot is free. Lower the replicas of a pool, or add a host"
        )
    else:
        found.append(_no_room(pool, tuple(node for node in nodes if _selects(pool, node))))
    return [each for each in found if each]


def _no_room(pool: RunnerPool, hosts: tuple[Node, ...]) -> str:
    """That slots are too small for the pool's runners: a host that joins may be smaller than the first one."""
    wanted, room = pool.spec.replicas, sum(_room(pool, node) for node in hosts)
    if not 0 < room < wanted:
        return ""
    share = _slot(hosts)
    size = f"{pool.spec.pod_cpu_milli / 1000:g} cores and {pool.spec.pod_memory_mb} MiB"
    fix = "Give a smaller --cpu and --memory"
    if share:
        cpu, memory = share["podCPUMilli"] / 1000, share["podMemoryMB"]
        fix = f"On every slot fit --cpu {cpu:g} --memory {memory}Mi"
    has = "has" if room == 1 else "have"
    return f"only {room} of its {wanted} runners {has} room: each has {size}. {fix}"


def _room(pool: RunnerPool, node: Node) -> int:
    """How many runners of this pool fit on an empty host."""
    cpu, memory, slots = _size(node)
    by_cpu = cpu // pool.spec.pod_cpu_milli if cpu and pool.spec.pod_cpu_milli else slots
    by_memory = memory // pool.spec.pod_memory_mb if memory and pool.spec.pod_memory_mb else slots
    return min(slots, by_cpu, by_memory)


def _group(pool: RunnerPool) -> tuple[str, str]:
    return pool.spec.fleet_selector, pool.spec.agent_runtime


def _selector(pool: RunnerPool) -> dict[str, str]:
    selector: dict[str, str] = pod(project_pool(pool), "x", Settings())["spec"]["nodeSelector"]
    return selector


def _selects(pool: RunnerPool, node: Node) -> bool:
    return all(node.metadata.labels.get(key) == value for key, value in _selector(pool).items())


def able_hosts(pool: RunnerPool, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The hosts that can run a runner of this pool, as far as their labels, conditions and sizes say."""
    return tuple(
        node
        for node in nodes
        if _selects(pool, node) and healthy(node) and _large_enough(pool, node)
    )


def _large_enough(pool: RunnerPool, node: Node) -> bool:
    cpu, memory, _ = _size(node)
    return (not cpu or pool.spec.pod_cpu_milli <= cpu) and (
        not memory or pool.spec.pod_memory_mb <= memory
    )


def _no_host(pool: RunnerPool, nodes: tuple[Node, ...]) -> str:
    if able_hosts(pool, nodes):
        return ""
    fits = [node for node in nodes if _selects(pool, node)]
    if not fits:
        needs = ", ".join(f"{key}={value}" for key, value in _selector(pool).items())
        joined = ", ".join(node.metadata.name for node in _hosts(nodes)) or "none"
        return f"no host can run it: none has the labels {needs} (hosts: {joined}). Check --fleet, --os and --runtime"
    large = [node for node in fits if _large_enough(pool, node)]
    if not large:
        size = f"{pool.spec.pod_cpu_milli / 1000:g} cores and {pool.spec.pod_memory_mb} MiB"
        return f"no host can run it: none has {size}. Give a smaller --cpu and --memory"
    called = ", ".join(node.metadata.name for node in large)
    return f"no host can run it now: {called} cordoned, under pressure or not ready. See runyard status"


def same_label(pool: RunnerPool, others: Iterable[RunnerPool]) -> str:
    """The pool that already has this pool's dispatch label; empty if there is none."""
    label = view_of(pool).dispatch_label
    return next((o.metadata.name for o in others if view_of(o).dispatch_label == label), "")


def runs_on(labels: Iterable[str]) -> str:
    """The line of a workflow whose jobs run on runners with these labels."""
    quoted = (each if _PLAIN.fullmatch(each) else _quoted(each) for each in labels)
    return f"runs-on: [{', '.join(quoted)}]"


def _quoted(label: str) -> str:
    return msgspec.json.encode(label).decode()


def check_name(name: str) -> str:
    """The name, or `BadSetting`: it is a label's value and the beginning of the Pods' names."""
    if not _NAME.fullmatch(name):
        raise BadSetting(
            f"{name!r} is not a pool's name. Use up to 63 lower-case letters, digits and '-', such as mac-xcode-26"
        )
    return name
