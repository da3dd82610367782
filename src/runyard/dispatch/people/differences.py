"""What a person's wish changes of a tenant, as entries of the audit trail. Pure.

Invariant: a wish for what is already so changes nothing and leaves no entry, so asking twice does no harm.
"""

from collections.abc import Mapping

import msgspec

from runyard.wire.people import Limit, Repository, RepositoryPatch, TenantPatch


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant as it is."""

    weight: float
    paused: bool
    limits: tuple[Limit, ...] = ()
    repositories: tuple[Repository, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One field, from and to, as text."""

    field: str
    source: str
    target: str


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The tenant as it shall be, with what is different about it."""

    weight: float
    paused: bool
    limits: tuple[Limit, ...]  # only those that are different
    repositories: tuple[Repository, ...]  # likewise
    differences: tuple[Difference, ...]


class BadWish(Exception):
    """A patch that makes no sense; the message says what."""


def spelled(patch: TenantPatch, known: tuple[Repository, ...], *, tenant: str) -> TenantPatch:
    """The patch with repositories as GitHub spells them; `BadWish` for an unknown one, and for what is said twice."""
    _once("limits", [each.platform for each in patch.limits])
    _once("repositories", [each.repository.lower() for each in patch.repositories])
    names = {each.repository.lower(): each.repository for each in known}
    for each in patch.repositories:
        if each.repository.lower() not in names:
            raise BadWish(
                f"{each.repository} is not known as a repository of {tenant}; one is known from its first job on,"
                f" and `runyard tenant show {tenant}` names them"
            )
    return msgspec.structs.replace(
        patch,
        repositories=tuple(
            msgspec.structs.replace(each, repository=names[each.repository.lower()])
            for each in patch.repositories
        ),
    )


def _once(field: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadWish(f"{field} names {twice[0]} twice")


def wish(now: Now, patch: TenantPatch) -> Wish:
    """What is to be written so that the patch holds."""
    weight = now.weight if patch.weight is None else patch.weight
    paused = now.paused if patch.paused is None else patch.paused
    limits = _limits(now.limits, patch.limits)
    repositories = _repositories(now.repositories, patch.repositories)
    differences = (
        *_differs("weight", _number(now.weight), _number(weight)),
        *_differs("paused", _yes(now.paused), _yes(paused)),
        *(difference for _, difference in limits),
        *(difference for _, difference in repositories),
    )
    return Wish(
        weight=weight,
        paused=paused,
        limits=tuple(limit for limit, _ in limits),
        repositories=tuple(repository for repository, _ in repositories),
        differences=differences,
    )


def _limits(
    known: tuple[Limit, ...], wanted: tuple[Limit, ...]
) -> tuple[tuple[Limit, Difference], ...]:
    by_name: Mapping[str, Limit] = {each.platform: each for each in known}
    found: list[tuple[Limit, Difference]] = []
    for each in wanted:
        has = by_name.get(each.platform, Limit(platform=each.platform, vcpus=0, memory_gb=0))
        limit = Limit(
            platform=each.platform,
            vcpus=has.vcpus if each.vcpus is None else each.vcpus,
            memory_gb=has.memory_gb if each.memory_gb is None else each.memory_gb,
        )
        there = _told(has) if each.platform in by_name else "none"
        found += [(limit, d) for d in _differs(f"limit/{each.platform}", there, _told(limit))]
    return tuple(found)


def _repositories(
    known: tuple[Repository, ...], wanted: tuple[RepositoryPatch, ...]
) -> tuple[tuple[Repository, Difference], ...]:
    by_name = {each.repository: each for each in known}
    found: list[tuple[Repository, Difference]] = []
    for each in wanted:
        has = by_name[each.repository]  # `spelled` has looked
        repository = Repository(
            repository=each.repository,
            weight=has.weight if each.weight is None else each.weight,
            priority=has.priority if each.priority is None else each.priority,
        )
        field = f"repository/{each.repository}"
        found += [(repository, d) for d in _differs(field, _share(has), _share(repository))]
    return tuple(found)


def _differs(field: str, source: str, target: str) -> tuple[Difference, ...]:
    return () if source == target else (Difference(field=field, source=source, target=target),)


def _told(limit: Limit) -> str:
    return f"{limit.vcpus} vCPU, {limit.memory_gb} GB"


def _share(repository: Repository) -> str:
    return f"weight {_number(repository.weight)}, priority {repository.priority}"


def _number(value: float) -> str:
    """As short as it can be and still be that number: what looks the same is the same."""
    return repr(value).removesuffix(".0")


def _yes(value: bool) -> str:
    return "yes" if value else "no"
