"""A patch of a tenant changes only its fields, and only if they differ."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runyard.dispatch.rest.tenant_update import (
    InvalidPatch,
    TenantState,
    plan_update,
    with_known_names,
)
from runyard.wire.rest import Limit, Repository, RepositoryPatch, TenantPatch

NUMBERS = st.integers(0, 100)
PLATFORMS = st.sampled_from(("linux", "macos"))
LIMITS = st.lists(
    st.builds(Limit, platform=PLATFORMS, vcpus=NUMBERS, memory_gb=NUMBERS),
    max_size=2,
    unique_by=lambda each: each.platform,
).map(tuple)
MAYBE = st.none() | NUMBERS
WISHED = st.lists(
    st.builds(Limit, platform=PLATFORMS, vcpus=MAYBE, memory_gb=MAYBE),
    max_size=2,
    unique_by=lambda each: each.platform,
).map(tuple)
PATCHES = st.builds(
    TenantPatch,
    weight=st.none() | st.floats(0.5, 9),
    paused=st.none() | st.booleans(),
    limits=WISHED,
)
TENANTS = st.builds(TenantState, weight=st.floats(0.5, 9), paused=st.booleans(), limits=LIMITS)


def applied(now: TenantState, patch: TenantPatch) -> TenantState:
    found = plan_update(now, patch)
    limits = {each.platform: each for each in now.limits}
    limits |= {each.platform: each for each in found.limits}
    return TenantState(weight=found.weight, paused=found.paused, limits=tuple(limits.values()))


@given(TENANTS, PATCHES)
def test_applying_a_patch_twice_changes_nothing(now: TenantState, patch: TenantPatch) -> None:
    assert plan_update(applied(now, patch), patch).differences == ()


@given(TENANTS, PATCHES)
def test_omitted_fields_stay(now: TenantState, patch: TenantPatch) -> None:
    found = plan_update(now, patch)
    if patch.weight is None:
        assert found.weight == now.weight
    if patch.paused is None:
        assert found.paused == now.paused
    assert {each.platform for each in found.limits} <= {each.platform for each in patch.limits}


def test_a_patch_of_vcpus_keeps_the_memory_limit() -> None:
    now = TenantState(
        weight=1, paused=False, limits=(Limit(platform="macos", vcpus=12, memory_gb=28),)
    )
    found = plan_update(now, TenantPatch(limits=(Limit(platform="macos", vcpus=6),)))
    assert found.limits == (Limit(platform="macos", vcpus=6, memory_gb=28),)


APP = Repository(repository="a/App", weight=1.0, priority=0)


def test_repository_names_are_case_insensitive() -> None:
    patch = TenantPatch(repositories=(RepositoryPatch(repository="A/aPP", priority=3),))
    found = plan_update(
        TenantState(weight=1, paused=False, repositories=(APP,)),
        with_known_names(patch, (APP,), tenant="a"),
    )
    assert found.repositories == (Repository(repository="a/App", weight=1.0, priority=3),)
    assert found.differences[0].source == "weight 1, priority 0"


BAD = {
    "nobody's": ((), ("a/ap",), "a/ap is not known"),
    "a platform twice": (("macos", "macos"), (), "limits names macos twice"),
    "a repository twice": ((), ("a/App", "a/app"), "repositories names a/app twice"),
}


@pytest.mark.parametrize(("platforms", "repositories", "message"), BAD.values(), ids=BAD)
def test_unknown_and_repeated_names_are_refused(
    platforms: tuple[Any, ...], repositories: tuple[str, ...], message: str
) -> None:
    patch = TenantPatch(
        limits=tuple(Limit(platform=each, vcpus=1) for each in platforms),
        repositories=tuple(RepositoryPatch(repository=each, weight=2) for each in repositories),
    )
    with pytest.raises(InvalidPatch, match=message):
        with_known_names(patch, (APP,), tenant="a")


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
@example(1.0, 1.0000004)
def test_the_smallest_difference_of_a_weight_is_written(before: float, after: float) -> None:
    found = plan_update(TenantState(weight=before, paused=False), TenantPatch(weight=after))
    assert found.weight == after
    message = [(each.source, each.target) for each in found.differences]
    assert [(float(a), float(b)) for a, b in message] == (
        [(before, after)] if before != after else []
    )
