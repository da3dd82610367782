"""Computes what a patch changes of a tenant, as entries of the audit trail. Pure.

Invariant: a patch that changes nothing adds no entry, so applying it twice is harmless.
"""

from collections.abc import Mapping

import msgspec

from runyard.wire.reasons import Value
from runyard.wire.rest import Limit, Repository, RepositoryPatch, TenantPatch


class TenantState(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant before the patch."""

    weight: float
    paused: bool
    limits: tuple[Limit, ...] = ()
    repositories: tuple[Repository, ...] = ()


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One changed field, with its old and new value as text; `detail` has the fields of a reason in `source`."""

    field: str
    source: str
    target: str
    detail: dict[str, Value] = {}


class TenantUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The tenant after the patch, with the differences."""

    weight: float
    paused: bool
    limits: tuple[Limit, ...]  # only changed ones
    repositories: tuple[Repository, ...]  # only changed ones
    differences: tuple[Difference, ...]


class InvalidPatch(Exception):
    """A patch is invalid; the message says why."""


def with_known_names(
    patch: TenantPatch, known: tuple[Repository, ...], *, tenant: str
) -> TenantPatch:
    """Return the patch with GitHub's spelling of repositories; raise `InvalidPatch` for unknown or repeated names."""
    _reject_duplicates("limits", [each.platform for each in patch.limits])
    _reject_duplicates("repositories", [each.repository.lower() for each in patch.repositories])
    names = {each.repository.lower(): each.repository for each in known}
    for each in patch.repositories:
        if each.repository.lower() not in names:
            raise InvalidPatch(
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


def _reject_duplicates(field: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidPatch(f"{field} names {twice[0]} twice")


def plan_update(state: TenantState, patch: TenantPatch) -> TenantUpdate:
    """Compute what a patch writes."""
    weight = state.weight if patch.weight is None else patch.weight
    paused = state.paused if patch.paused is None else patch.paused
    limits = _limits(state.limits, patch.limits)
    repositories = _repositories(state.repositories, patch.repositories)
    differences = (
        *_differs("weight", _number_text(state.weight), _number_text(weight)),
        *_differs("paused", _yes_or_no(state.paused), _yes_or_no(paused)),
        *(difference for _, difference in limits),
        *(difference for _, difference in repositories),
    )
    return TenantUpdate(
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
        there = _limit_text(has) if each.platform in by_name else "none"
        found += [(limit, d) for d in _differs(f"limit/{each.platform}", there, _limit_text(limit))]
    return tuple(found)


def _repositories(
    known: tuple[Repository, ...], wanted: tuple[RepositoryPatch, ...]
) -> tuple[tuple[Repository, Difference], ...]:
    by_name = {each.repository: each for each in known}
    found: list[tuple[Repository, Difference]] = []
    for each in wanted:
        has = by_name[each.repository]  # `with_known_names` has checked it
        repository = Repository(
            repository=each.repository,
            weight=has.weight if each.weight is None else each.weight,
            priority=has.priority if each.priority is None else each.priority,
        )
        field = f"repository/{each.repository}"
        found += [
            (repository, d)
            for d in _differs(field, _repository_text(has), _repository_text(repository))
        ]
    return tuple(found)


def _differs(field: str, source: str, target: str) -> tuple[Difference, ...]:
    return () if source == target else (Difference(field=field, source=source, target=target),)


def _limit_text(limit: Limit) -> str:
    return f"{limit.vcpus} vCPU, {limit.memory_gb} GB"


def _repository_text(repository: Repository) -> str:
    return f"weight {_number_text(repository.weight)}, priority {repository.priority}"


def _number_text(value: float) -> str:
    """The shortest text that is exactly this number, so that equal texts mean equal numbers."""
    return repr(value).removesuffix(".0")


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"
