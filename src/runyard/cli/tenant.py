"""`runyard tenant`: limits and shares of accounts, and the audit trail of their changes."""

from collections.abc import Sequence

import click

from runyard.cli.options import NumberRange
from runyard.cli.server_client import ServerClient, with_server_client
from runyard.cli.tables import moment, show_json, show_table
from runyard.wire.rest import (
    TENANTS,
    Limit,
    RepositoryPatch,
    Tenant,
    TenantPatch,
    Tenants,
)

_WIDTH = {"max_content_width": 110}
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
_WHY = click.option("--why", default="", help="Reason, for the audit trail.")
_COUNT = click.IntRange(0, 1_000_000)
_WEIGHT = NumberRange(0, 1_000_000, min_open=True)


@click.group(context_settings=_WIDTH)
def tenant() -> None:
    """Show and change tenants: the GitHub accounts whose jobs run here.

    \b
    runyard tenant list
    runyard tenant show acme
    runyard tenant set acme --macos-vcpus 24 --macos-memory-gb 56 --weight 2
    runyard tenant set acme --repository acme/app --repository-weight 3 --priority 10
    runyard tenant pause acme --why 'the release is frozen'
    """


@tenant.command("list")
@click.option("--paused", is_flag=True, help="Only paused tenants.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--after", default="", help="Only tenants after this name, to get the next page.")
@_JSON
@with_server_client
def list_(client: ServerClient, limit: int, after: str, *, paused: bool, as_json: bool) -> None:
    """List tenants by name, with the vCPUs and memory they use.

    \b
    runyard tenant list --paused
    """
    query = [("limit", str(limit))]
    query += [("after", after)] if after else []
    query += [("paused", "true")] if paused else []
    found = client.read(Tenants, "GET", TENANTS, query=tuple(query))
    if as_json:
        show_json(found)
        return
    show_table(
        ("tenant", "weight", "paused", "linux vcpu", "linux gb", "macos vcpu", "macos gb"),
        [_line(each) for each in found.items],
    )
    if found.next:
        click.echo(f"more tenants: --after {found.next}", err=True)


@tenant.command()
@click.argument("name")
@_JSON
@with_server_client
def show(client: ServerClient, name: str, *, as_json: bool) -> None:
    """Show one tenant, its repositories, and its last changes."""
    _print_tenant(client.read(Tenant, "GET", _path(name)), as_json=as_json)


@tenant.command("set")
@click.argument("name")
@click.option("--weight", type=_WEIGHT, help="Share of the fleet, relative to other tenants.")
@click.option("--linux-vcpus", type=_COUNT, help="Limit of vCPUs in use by Linux jobs.")
@click.option("--linux-memory-gb", type=_COUNT, help="Limit of memory in use by Linux jobs.")
@click.option("--macos-vcpus", type=_COUNT, help="Limit of vCPUs in use by macOS jobs.")
@click.option("--macos-memory-gb", type=_COUNT, help="Limit of memory in use by macOS jobs.")
@click.option("--repository", help="Repository (owner/name) that the next two options change.")
@click.option(
    "--repository-weight",
    type=_WEIGHT,
    help="Share of the repository, relative to the tenant's others.",
)
@click.option(
    "--priority",
    type=click.IntRange(-1_000_000, 1_000_000),
    help="Priority of the repository's jobs within the tenant: larger goes first.",
)
@_WHY
@_JSON
@with_server_client
def set_(
    client: ServerClient,
    name: str,
    *,
    weight: float | None,
    linux_vcpus: int | None,
    linux_memory_gb: int | None,
    macos_vcpus: int | None,
    macos_memory_gb: int | None,
    repository: str | None,
    repository_weight: float | None,
    priority: int | None,
    why: str,
    as_json: bool,
) -> None:
    """Change limits and shares; options that are left out keep their value.

    \b
    runyard tenant set acme --macos-vcpus 24 --macos-memory-gb 56
    runyard tenant set acme --repository acme/app --priority 10
    """
    limits = (
        Limit(platform="linux", vcpus=linux_vcpus, memory_gb=linux_memory_gb),
        Limit(platform="macos", vcpus=macos_vcpus, memory_gb=macos_memory_gb),
    )
    patch = TenantPatch(
        weight=weight,
        limits=tuple(
            each for each in limits if each.vcpus is not None or each.memory_gb is not None
        ),
        repositories=_repository(repository, repository_weight, priority),
        why=why,
    )
    if patch == TenantPatch(why=why):
        raise click.UsageError("nothing to set: give a limit, a weight or a priority")
    _print_tenant(client.read(Tenant, "PATCH", _path(name), body=patch), as_json=as_json)


@tenant.command()
@click.argument("name")
@_WHY
@_JSON
@with_server_client
def pause(client: ServerClient, name: str, *, why: str, as_json: bool) -> None:
    """Stop offering the tenant's jobs to runners. Queued jobs are kept; running jobs continue.

    \b
    runyard tenant pause acme --why 'the release is frozen'
    """
    patch = TenantPatch(paused=True, why=why)
    _print_tenant(client.read(Tenant, "PATCH", _path(name), body=patch), as_json=as_json)


@tenant.command()
@click.argument("name")
@_WHY
@_JSON
@with_server_client
def resume(client: ServerClient, name: str, *, why: str, as_json: bool) -> None:
    """Offer the tenant's jobs to runners again.

    If the jobs waited because GitHub refused runners for this tenant, one job is tried at once.

    \b
    runyard tenant resume acme
    """
    patch = TenantPatch(paused=False, why=why)
    _print_tenant(client.read(Tenant, "PATCH", _path(name), body=patch), as_json=as_json)


def _path(name: str) -> str:
    if not name or "/" in name:
        raise click.UsageError(f"{name!r} is not the name of a tenant")
    return f"{TENANTS}/{name}"


def _repository(
    name: str | None, weight: float | None, priority: int | None
) -> tuple[RepositoryPatch, ...]:
    if name is None:
        if weight is not None or priority is not None:
            raise click.UsageError(
                "--repository-weight and --priority apply to a repository: name it with --repository"
            )
        return ()
    if weight is None and priority is None:
        raise click.UsageError("--repository needs --repository-weight or --priority")
    return (RepositoryPatch(repository=name, weight=weight, priority=priority),)


def _line(each: Tenant) -> Sequence[str]:
    uses = {use.platform: use for use in each.limits}
    cells: list[str] = []
    for platform in ("linux", "macos"):
        use = uses.get(platform)
        cells.append("-" if use is None else f"{use.vcpus_used}/{use.vcpus}")
        cells.append("-" if use is None else f"{use.memory_gb_used}/{use.memory_gb}")
    return (each.tenant, f"{each.weight:g}", "yes" if each.paused else "no", *cells)


def _print_tenant(found: Tenant, *, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    show_table(
        ("tenant", "kind", "installation", "weight", "paused", "runners at"),
        [
            (
                found.tenant,
                found.kind,
                str(found.installation_id),
                f"{found.weight:g}",
                "yes" if found.paused else "no",
                found.mint_at,
            )
        ],
    )
    if found.limits:
        click.echo()
        show_table(
            ("platform", "vcpus", "used", "memory gb", "used"),
            [
                tuple(
                    map(
                        str,
                        (
                            use.platform,
                            use.vcpus,
                            use.vcpus_used,
                            use.memory_gb,
                            use.memory_gb_used,
                        ),
                    )
                )
                for use in found.limits
            ],
        )
    if found.repositories:
        click.echo()
        show_table(
            ("repository", "weight", "priority"),
            [
                (each.repository, f"{each.weight:g}", str(each.priority))
                for each in found.repositories
            ],
        )
    if found.changes:
        click.echo()
        show_table(
            ("changed", "what", "from", "to", "who", "why"),
            [
                (
                    moment(each.at),
                    each.field,
                    each.text or each.source,
                    each.target,
                    each.actor,
                    each.why,
                )
                for each in found.changes
            ],
        )
