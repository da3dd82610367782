"""Creates the first pool of a machine, and moves it when the machine's driver or the given image changed.

`runyard up` writes what it sent last into an annotation of the pool, as `kubectl apply` does. So a later start knows
which fields a user has changed since, and leaves those alone. `plan` is pure; `ensure` applies it.

That the pool was made once is an annotation of its namespace, so a user who deletes it is obeyed. It is lost with the
pools, and then the next start makes the pool again.

Invariants:
- A pool that a user has changed or made is never moved to another runtime: the difference is reported with
  the command that makes the change.
- `--image` is applied when it is new. The same option again, as a service gives it at each start, does not undo a
  change that was made after it.
- Jobs that ran in VMs run as processes of this machine only if `--driver process` was given: a tart that is broken
  for a while must not weaken their isolation.
- The number of runners is never changed.
"""

import contextlib
import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from runyard.embedded.up import practice
from runyard.embedded.up.machine import Options
from runyard.hosts.joining import accounts
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, Conflict, NotFound
from runyard.kube.kinds import NAMESPACES, RUNNER_POOLS
from runyard.vm.registry import RUNTIMES, DriverName
from runyard.wire import names
from runyard.wire.runnerpool import PoolSpec

Spec = dict[str, Any]
_KUBELET = "hosts with a kubelet"
# What follows from the driver; only the image may be given.
_BY_DRIVER = ("image", "os", "runnerLabels", "runtimeClass", "podCPUMilli", "podMemoryMB")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send (None: nothing), and what to report."""

    patch: dict[str, Any] | None = None
    report: tuple[str, ...] = ()


async def ensure(kube: Kube, options: Options, report: Callable[[str], None]) -> None:
    """Create the pool, or bring it to what this start was given; one that a user has deleted stays deleted."""
    space = await kube.get(NAMESPACES, names.RUNNERS_NAMESPACE)
    pools = (await kube.list(RUNNER_POOLS, namespace=names.RUNNERS_NAMESPACE)).items
    pool = next((each for each in pools if each["metadata"]["name"] == practice.POOL), None)
    made = names.FIRST_POOL_MADE in space["metadata"].get("annotations", {})
    if pool is None and made:
        if not pools or options.image:
            report(_deleted(options))
        return
    if pool is None:
        await _create(kube, options)
    if not made:
        mark = {"metadata": {"annotations": {names.FIRST_POOL_MADE: "true"}}}
        await kube.patch(NAMESPACES, names.RUNNERS_NAMESPACE, mark)
    if pool is None:
        return
    decided = plan(pool, options, joined=bool(await accounts.joined(kube)))
    if decided.patch is not None:
        meta = pool["metadata"]
        try:
            await kube.patch(
                RUNNER_POOLS,
                practice.POOL,
                decided.patch,
                namespace=names.RUNNERS_NAMESPACE,
                uid=meta["uid"],
                resource_version=meta["resourceVersion"],
            )
        except Conflict:
            report(f"the pool {practice.POOL} was changed meanwhile; the next start compares it")
            return
    for line in decided.report:
        report(line)


async def labels(kube: Kube) -> tuple[str, ...]:
    """What a workflow writes in `runs-on`, for each pool; the first pool comes first."""
    pools = (await kube.list(RUNNER_POOLS, namespace=names.RUNNERS_NAMESPACE)).items
    by_name = {each["metadata"]["name"]: str(each["spec"]["dispatchLabel"]) for each in pools}
    first = {key: by_name[key] for key in (practice.POOL,) if key in by_name}
    return tuple((first | by_name).values())


async def waits_for(kube: Kube, options: Options) -> str:
    """What the first pool is made for, if the hosts here run something else and none has joined; else empty."""
    try:
        pool = await kube.get(RUNNER_POOLS, practice.POOL, namespace=names.RUNNERS_NAMESPACE)
    except NotFound:
        return ""
    theirs = _runtime(pool["spec"])
    if theirs == _runtime(_wanted(options)) or await accounts.joined(kube):
        return ""
    return theirs or _KUBELET


async def _create(kube: Kube, options: Options) -> None:
    wanted = _wanted(options)
    body = {
        "metadata": {"name": practice.POOL, "annotations": _annotation(wanted)},
        "spec": wanted,
    }
    with contextlib.suppress(AlreadyExists):
        await kube.create(RUNNER_POOLS, body, namespace=names.RUNNERS_NAMESPACE)


def plan(pool: dict[str, Any], options: Options, *, joined: bool = False) -> Plan:
    """What this start changes in an existing pool, and what it reports about it; `joined`: other machines have."""
    spec, wanted = pool["spec"], _wanted(options)
    sent = _sent(pool)
    # The slots of other machines count too, and they may be away while this one starts.
    replicas = () if joined else _replicas(spec, wanted, options)
    ours, theirs = _runtime(wanted), _runtime(spec)
    if ours != theirs:
        if not _same(spec, sent):
            return Plan(report=(_by_hand(theirs, spec, wanted, options), *replicas))
        if options.driver == "process" and not options.driver_given:
            return Plan(report=(_waits(theirs), *replicas))
        line = f"the pool {practice.POOL} moves from {theirs} to {ours}: {_size(wanted)}"
        return Plan(patch=_patch(wanted, wanted), report=(line, *replicas))
    if options.image in ("", spec.get("image")):
        return Plan(report=replicas)
    if (sent or {}).get("image") == options.image:
        kept = (
            f"the pool {practice.POOL} keeps the image {spec.get('image')}, which it was given after {options.image}."
            f" Change it with {_command(options, image=options.image)}"
        )
        return Plan(report=(kept, *replicas))
    line = f"the pool {practice.POOL} rolls from {spec.get('image')} to {options.image}"
    change = {"image": options.image}
    return Plan(patch=_patch(change, (sent or {}) | change), report=(line, *replicas))


def _wanted(options: Options) -> Spec:
    body = practice.pool(
        replicas=options.hosts * options.pods,
        driver=options.driver,
        image=options.image,
        slots=options.pods,
    )
    spec: Spec = body["spec"]
    return spec


def _annotation(sent: Spec) -> dict[str, str]:
    kept = {key: sent[key] for key in _BY_DRIVER if key in sent}
    return {names.SENT_BY_UP: msgspec.json.encode(kept, order="sorted").decode()}


def _patch(change: Spec, sent: Spec) -> dict[str, Any]:
    """A merge patch; a field that only the other driver needs is removed, and the annotation says what was sent."""
    whole = len(change) > 1
    spec = {key: change.get(key) for key in _BY_DRIVER if whole or key in change}
    return {"metadata": {"annotations": _annotation(sent)}, "spec": spec}


def _sent(pool: dict[str, Any]) -> Spec | None:
    """The fields that `runyard up` sent last; for a pool from before the annotation, if it has them all unchanged."""
    text = pool["metadata"].get("annotations", {}).get(names.SENT_BY_UP, "")
    try:
        return msgspec.json.decode(text, type=Spec)
    except msgspec.DecodeError:
        pass
    spec = pool["spec"]
    drivers: tuple[DriverName, ...] = tuple(RUNTIMES)
    for driver in drivers:
        image = "" if driver == "process" else spec.get("image", "")
        made: Spec = practice.pool(replicas=0, driver=driver, image=image)["spec"]
        if _same(spec, made):
            return made
    return None


def _same(spec: Spec, sent: Spec | None) -> bool:
    return sent is not None and all(spec.get(key, "") == sent.get(key, "") for key in _BY_DRIVER)


def _runtime(spec: Spec) -> str:
    return msgspec.convert(spec, PoolSpec, strict=False).agent_runtime


def _size(spec: Spec) -> str:
    cores = spec["podCPUMilli"] / 1000
    return f"image {spec['image']}, each runner with {cores:g} cores and {spec['podMemoryMB']} MiB"


def _by_hand(theirs: str, spec: Spec, wanted: Spec, options: Options) -> str:
    command = _command(
        options,
        runtime=options.driver,
        image=wanted["image"],
        os=wanted["os"],
        labels=",".join(wanted["runnerLabels"]),
        **_size_options(wanted),
    )
    return (
        f"the pool {practice.POOL} was made for {theirs or _KUBELET} and a user has changed it, so it is"
        f" kept; these hosts run {options.driver}, and its runners do not fit on them. Move it with {command}"
    )


def _waits(theirs: str) -> str:
    return (
        f"the pool {practice.POOL} is made for {theirs}, and these hosts run processes: its jobs wait. Repair {theirs}"
        " (the first line says what is wrong), or start with --driver process, and jobs run as processes of this user"
    )


def _replicas(spec: Spec, wanted: Spec, options: Options) -> tuple[str, ...]:
    has, slots = spec.get("replicas", 0), wanted["replicas"]
    if has == slots:
        return ()
    command = _command(options, replicas=str(slots), **_other_size(spec, wanted))
    line = (
        f"the pool {practice.POOL} keeps its number of runners, {has}; the VM slots of these hosts are {slots}."
        f" Change it with {command}"
    )
    return (line,)


def _other_size(spec: Spec, wanted: Spec) -> dict[str, str]:
    """The size of one runner as options, if it is another one: more VMs have a smaller share of the machine each."""
    keys = ("podCPUMilli", "podMemoryMB")
    if _runtime(spec) != _runtime(wanted) or all(spec.get(key) == wanted[key] for key in keys):
        return {}
    return _size_options(wanted)


def _size_options(wanted: Spec) -> dict[str, str]:
    cpu, memory = wanted["podCPUMilli"] / 1000, wanted["podMemoryMB"]
    return {"cpu": f"{cpu:g}", "memory": f"{memory}Mi"}


def _deleted(options: Options) -> str:
    wanted = _wanted(options)
    command = _command(
        options,
        change="",  # there is none to change
        image=wanted["image"],
        replicas=str(wanted["replicas"]),
        labels=",".join(wanted["runnerLabels"]),
        **{"dispatch-label": wanted["dispatchLabel"]},
    )
    return f"the pool {practice.POOL} was deleted, and stays so. Make it again with {command}"


def _command(options: Options, *, change: str = " --replace", **fields: str) -> str:
    given = " ".join(f"--{name} {shlex.quote(value)}" for name, value in fields.items())
    where = shlex.quote(str(options.data))
    return f"runyard pool create {practice.POOL} {given}{change} --data {where}"
