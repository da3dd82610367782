"""Runs `runyard pool`: creates, changes, lists, shows and deletes RunnerPools over the Kubernetes API.

Invariants:
- A command that is repeated changes nothing: an equal pool is "unchanged", a pool that is not there is deleted.
- An existing pool is changed only with `--replace`, and never if it changed since it was read (its resourceVersion
  is the precondition), nor is another pool of that name deleted (its uid is).
- A busy runner is never deleted here: the operator removes idle ones, and the others after their jobs.
"""

import sys
from collections.abc import Callable

import click
import msgspec

from runyard.cli import poolplan
from runyard.cli.cluster_access import ClusterAccess
from runyard.cli.local_machine import Unreachable
from runyard.cli.options import BadSetting, Failed
from runyard.cli.poolplan import Spec, Wanted
from runyard.cli.poolreport import Read, read_others, read_pool, read_pools, report
from runyard.cli.poolscreen import Format, encoded, pool_page, pool_table
from runyard.cli.screen import output_width
from runyard.clock import RealClock
from runyard.dispatch.pools import view_of
from runyard.http.errors import TransportError
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from runyard.kube.kinds import NODES, RUNNER_POOLS
from runyard.kube.objects import Node, RunnerPool
from runyard.text import harmless

NO_KIND = (
    "the cluster does not know RunnerPools. Prepare it: runyard manifests | kubectl apply -f -"
)


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """What `pool create` should do."""

    name: str
    namespace: str
    wanted: Wanted
    replace: bool = False
    dry_run: bool = False
    format: Format = "table"


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster has. `pools` are the others."""

    pool: RunnerPool | None = None
    pools: tuple[RunnerPool, ...] = ()
    nodes: tuple[Node, ...] = ()
    unread: str = ""  # why the hosts could not be read


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, or would be."""

    done: str
    pool: RunnerPool
    sent: Spec
    problems: tuple[str, ...] = ()


def create(find: Callable[[], ClusterAccess], asked: Create) -> None:
    """Create a pool, change it with `replace`, or only print what would be sent."""
    poolplan.check_name(asked.name)
    try:
        access = find()
        result = access.run(lambda kube: _create(kube, asked))
    except Unreachable as error:
        if not asked.dry_run:
            raise
        click.echo(f"runyard: hosts and existing pools are not checked: {error.message}", err=True)
        result = _offline(asked)
    _print(asked, result)


def _offline(asked: Create) -> _Result:
    return _new(asked, _Known())


async def _create(kube: Kube, asked: Create) -> _Result:
    known = await _known(kube, asked.namespace, asked.name)
    if known.pool is not None:
        return await _change(kube, known.pool, known, asked)
    result = _new(asked, known)
    if asked.dry_run:
        return result
    body = {"metadata": {"name": asked.name}, "spec": result.sent["spec"]}
    try:
        await kube.create(RUNNER_POOLS, body, namespace=asked.namespace)
    except AlreadyExists:
        raise Failed(
            f"somebody else created the pool {asked.name} meanwhile. Run it again"
        ) from None
    return result


async def _known(kube: Kube, namespace: str, name: str) -> _Known:
    try:
        pools = await read_pools(kube, namespace)
    except NotFound:
        raise Failed(NO_KIND) from None
    nodes: tuple[Node, ...] = ()
    unread = ""
    try:
        nodes = await kube.list_as(NODES, Node)
    except (KubeError, TransportError) as error:
        unread = harmless(str(error))
    return _Known(
        pool=next((pool for pool in pools if pool.metadata.name == name), None),
        pools=tuple(pool for pool in pools if pool.metadata.name != name),
        nodes=nodes,
        unread=unread,
    )


def _new(asked: Create, known: _Known) -> _Result:
    spec = poolplan.new_spec(asked.name, asked.wanted, known.nodes)
    done = "would be created" if asked.dry_run else "created"
    return _result(f"pool {asked.name} {done}", spec, asked, known)


def _result(done: str, spec: Spec, asked: Create, known: _Known) -> _Result:
    """The result; refused if another pool has the label: jobs with it would have no definite pool."""
    pool = poolplan.as_pool(asked.name, asked.namespace, spec)
    taken = poolplan.same_label(pool, known.pools)
    if taken:
        raise Failed(
            f"the pool {taken} already has the dispatch label {pool.spec.dispatch_label}, and no two pools may share"
            " one. Give another --dispatch-label"
        )
    unread = f"the hosts cannot be read, so it is not known whether one can run it: {known.unread}"
    found = poolplan.problems(pool, known.pools, known.nodes) if known.nodes or known.pools else []
    return _Result(
        done=done,
        pool=pool,
        sent=poolplan.manifest(asked.name, asked.namespace, spec),
        problems=(unread,) if known.unread else tuple(found),
    )


async def _change(kube: Kube, pool: RunnerPool, known: _Known, asked: Create) -> _Result:
    meta, name = pool.metadata, asked.name
    if meta.deletion_timestamp:
        raise Failed(
            f"the pool {name} is being deleted. Wait until runyard pool list does not show it"
        )
    differences = poolplan.differences(pool, asked.wanted)
    changes = ", ".join(each.line() for each in differences)
    if differences and not (asked.replace or asked.dry_run):
        raise Failed(
            f"the pool {name} exists and differs: {changes}. Nothing was changed; --replace changes it"
        )
    done = "unchanged"
    if differences:
        done = f"{'would be changed' if asked.dry_run else 'changed'}: {changes}"
    spec = poolplan.merged(pool, asked.wanted)
    result = _result(f"pool {name} {done}", spec, asked, known)
    if differences and not asked.dry_run:
        patch = {"spec": poolplan.given_fields(asked.wanted)}
        try:
            await kube.patch(
                RUNNER_POOLS,
                name,
                patch,
                namespace=meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
        except Conflict:
            raise Failed(f"the pool {name} was changed meanwhile. Run it again") from None
    return result


def _print(asked: Create, result: _Result) -> None:
    if asked.dry_run or asked.format in ("json", "yaml"):
        click.echo(harmless(encoded(result.sent, "json" if asked.format == "json" else "yaml")))
        more = ". Nothing was sent" if asked.dry_run else ""
        click.echo(f"runyard: {harmless(result.done)}{more}", err=True)
    else:
        spec = result.pool.spec
        click.echo(harmless(result.done))
        click.echo(
            harmless(
                f"  {spec.replicas} runner{'' if spec.replicas == 1 else 's'} of {spec.image}, each with"
                f" {spec.pod_cpu_milli / 1000:g} cores and {spec.pod_memory_mb} MiB, on hosts of {spec.fleet_selector}"
            )
        )
        click.echo(
            harmless(f"  in a workflow: {poolplan.runs_on(view_of(result.pool).mint_labels)}")
        )
    for problem in result.problems:
        click.echo(harmless(f"runyard: warning: {problem}"), err=True)


def list_pools(access: ClusterAccess, format: Format) -> None:
    """Print all pools."""

    async def read(kube: Kube) -> tuple[tuple[RunnerPool, ...], Read]:
        try:
            pools = await read_pools(kube, access.namespace)
        except NotFound:
            raise Failed(NO_KIND) from None
        return pools, await read_others(kube, access.namespace)

    pools, others = access.run(read)
    reports = tuple(report(pool, others) for pool in pools)
    if format in ("json", "yaml"):
        click.echo(harmless(encoded({"items": reports}, format)))
        return
    if not reports:
        click.echo(
            "no pools. Create one: runyard pool create NAME --image REF --replicas 1", err=True
        )
        return
    now = RealClock().now()
    for line in pool_table(reports, wide=format == "wide", now=now, width=output_width()):
        click.echo(line)
    _print_unread(others)


def _print_unread(read: Read) -> None:
    for each in read.unread:
        click.echo(harmless(f"runyard: not read: {each}"), err=True)


def show(access: ClusterAccess, name: str, format: Format) -> None:
    """Print everything about one pool."""
    poolplan.check_name(name)

    async def read(kube: Kube) -> tuple[RunnerPool, Read]:
        pool = await _one(kube, name, access)
        return pool, await read_others(kube, access.namespace, pool=name, events=True)

    found = report(*access.run(read))
    if format in ("json", "yaml"):
        click.echo(harmless(encoded(found, format)))
        return
    for line in pool_page(found, now=RealClock().now(), width=output_width()):
        click.echo(line)


async def _one(kube: Kube, name: str, access: ClusterAccess) -> RunnerPool:
    try:
        return await read_pool(kube, name, access.namespace)
    except NotFound:
        raise Failed(f"{access.where} has no pool {name}. See runyard pool list") from None


def delete(access: ClusterAccess, name: str, *, yes: bool) -> None:
    """Delete a pool after a question; one that is not there, or is being deleted, is a success."""
    poolplan.check_name(name)

    async def read(kube: Kube) -> tuple[RunnerPool, Read] | None:
        try:
            pool = await read_pool(kube, name, access.namespace)
        except NotFound:
            return None
        return pool, await read_others(kube, access.namespace, pool=name)

    found = access.run(read)
    if found is None:
        click.echo(f"pool {name} is not there")
        return
    pool, others = found
    effect = _effect(pool, others)
    if pool.metadata.deletion_timestamp:
        click.echo(f"pool {name} is being deleted already: {effect}")
        return
    if not yes:
        _confirm(f"Delete the pool {name} of {access.where}: {effect}?")
    access.run(lambda kube: _delete(kube, pool))
    click.echo(f"pool {name} is being deleted: {effect}")


def _effect(pool: RunnerPool, others: Read) -> str:
    """What the deletion does to the runners."""
    if others.unread:
        return (
            "idle runners are removed at once, busy ones after their jobs (how many is not known)"
        )
    found = report(pool, others)
    idle = found.ready + found.starting
    busy = "no job is running"
    if found.busy:
        busy = f"{found.busy} busy, whose job{' finishes' if found.busy == 1 else 's finish'} first"
    return f"{idle} idle runner{'' if idle == 1 else 's'} removed at once, {busy}"


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise BadSetting("there is no terminal to ask on. Give --yes to delete it")
    click.confirm(harmless(question), abort=True, err=True)


async def _delete(kube: Kube, pool: RunnerPool) -> None:
    meta = pool.metadata
    try:
        await kube.delete(RUNNER_POOLS, meta.name, namespace=meta.namespace, uid=meta.uid)
    except NotFound:
        return
    except Conflict:
        raise Failed(f"the pool {meta.name} was replaced meanwhile. Run it again") from None
