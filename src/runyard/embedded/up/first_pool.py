"""Creates the first pool of a machine, and moves it when the machine's driver or the given image changed.

`runyard up` writes what it sent last into an annotation of the pool, as `kubectl apply` does. So a later start knows
which fields a user has changed since, and leaves those alone. `plan` is pure; `ensure` applies it.

Invariants:
- A pool that a user has changed or made is never moved to another runtime: the difference is reported with
  the command that makes the change.
- `--image` is applied when it is new. The same option again, as a service gives it at each start, does not undo a
  change that was made after it.
- Jobs that ran in VMs run as processes of this machine only if `--driver process` was given: a tart that is broken
  for a while must not weaken their isolation.
- The number of runners is never changed.
"""

import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from runyard.embedded.up import practice
from runyard.embedded.up.hosts import PODS
from runyard.embedded.up.machine import Options
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, Conflict
from runyard.kube.kinds import RUNNER_POOLS
from runyard.vm.registry import RUNTIMES, DriverName
from runyard.wire import names
from runyard.wire.runnerpool import PoolSpec

Spec = dict[str, Any]
# What follows from the driver; only the image may be given.
_BY_DRIVER = ("image", "os", "runnerLabels", "runtimeClass", "podCPUMilli", "podMemoryMB")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send (None: nothing), and what to report."""

    patch: dict[str, Any] | None = None
    report: tuple[str, ...] = ()


async def ensure(kube: Kube, options: Options, report: Callable[[str], None]) -> None:
    """Create the pool, or bring it to what this start was given."""
    wanted = _wanted(options)
    body = {
        "metadata": {"name": practice.POOL, "annotations": _annotation(wanted)},
        "spec": wanted,
    }
    try:
        await kube.create(RUNNER_POOLS, body, namespace=names.RUNNERS_NAMESPACE)
    except AlreadyExists:
        pass
    else:
        return
    pool = await kube.get(RUNNER_POOLS, practice.POOL, namespace=names.RUNNERS_NAMESPACE)
    decided = plan(pool, options)
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


def plan(pool: dict[str, Any], options: Options) -> Plan:
    """What this start changes in an existing pool, and what it reports about it."""
    spec, wanted = pool["spec"], _wanted(options)
    sent = _sent(pool)
    replicas = _replicas(spec, wanted, options)
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
    body = practice.pool(replicas=options.hosts * PODS, driver=options.driver, image=options.image)
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
        cpu=f"{wanted['podCPUMilli'] / 1000:g}",
        memory=f"{wanted['podMemoryMB']}Mi",
    )
    return (
        f"the pool {practice.POOL} was made for {theirs or 'hosts with a kubelet'} and a user has changed it, so it is"
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
    line = (
        f"the pool {practice.POOL} keeps its {has} runners; these hosts have {slots} VM slots."
        f" Change it with {_command(options, replicas=str(slots))}"
    )
    return (line,)


def _command(options: Options, **fields: str) -> str:
    given = " ".join(f"--{name} {shlex.quote(value)}" for name, value in fields.items())
    where = shlex.quote(str(options.data))
    return f"runyard pool create {practice.POOL} {given} --replace --data {where}"
