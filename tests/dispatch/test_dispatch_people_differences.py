"""What a wish changes: no more than it says, and nothing if it is so already."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runyard.dispatch.people.differences import BadWish, Now, spelled, wish
from runyard.wire.people import Limit, Repository, RepositoryPatch, TenantPatch

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
TENANTS = st.builds(Now, weight=st.floats(0.5, 9), paused=st.booleans(), limits=LIMITS)


def applied(now: Now, patch: TenantPatch) -> Now:
    found = wish(now, patch)
    limits = {each.platform: each for each in now.limits}
    limits |= {each.platform: each for each in found.limits}
    return Now(weight=found.weight, paused=found.paused, limits=tuple(limits.values()))


@given(TENANTS, PATCHES)
def test_a_wish_that_was_granted_wishes_nothing_more(now: Now, patch: TenantPatch) -> None:
    assert wish(applied(now, patch), patch).differences == ()


@given(TENANTS, PATCHES)
def test_what_is_left_out_stays(now: Now, patch: TenantPatch) -> None:
    found = wish(now, patch)
    if patch.weight is None:
        assert found.weight == now.weight
    if patch.paused is None:
        assert found.paused == now.paused
    assert {each.platform for each in found.limits} <= {each.platform for each in patch.limits}


def test_half_a_limit_keeps_the_other_half() -> None:
    now = Now(weight=1, paused=False, limits=(Limit(platform="macos", vcpus=12, memory_gb=28),))
    found = wish(now, TenantPatch(limits=(Limit(platform="macos", vcpus=6),)))
    assert found.limits == (Limit(platform="macos", vcpus=6, memory_gb=28),)


APP = Repository(repository="a/App", weight=1.0, priority=0)


def test_a_repository_in_another_case_is_the_one_that_is_known() -> None:
    patch = TenantPatch(repositories=(RepositoryPatch(repository="A/aPP", priority=3),))
    found = wish(
        Now(weight=1, paused=False, repositories=(APP,)), spelled(patch, (APP,), tenant="a")
    )
    assert found.repositories == (Repository(repository="a/App", weight=1.0, priority=3),)
    assert found.differences[0].source == "weight 1, priority 0"


BAD = {
    "nobody's": ((), ("a/ap",), "a/ap is not known"),
    "a platform twice": (("macos", "macos"), (), "limits names macos twice"),
    "a repository twice": ((), ("a/App", "a/app"), "repositories names a/app twice"),
}


@pytest.mark.parametrize(("platforms", "repositories", "told"), BAD.values(), ids=BAD)
def test_a_wish_that_would_do_nothing_or_two_things_is_refused(
    platforms: tuple[Any, ...], repositories: tuple[str, ...], told: str
) -> None:
    patch = TenantPatch(
        limits=tuple(Limit(platform=each, vcpus=1) for each in platforms),
        repositories=tuple(RepositoryPatch(repository=each, weight=2) for each in repositories),
    )
    with pytest.raises(BadWish, match=told):
        spelled(patch, (APP,), tenant="a")


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
@example(1.0, 1.0000004)
def test_a_weight_that_is_different_is_written_however_small_the_difference(
    before: float, after: float
) -> None:
    found = wish(Now(weight=before, paused=False), TenantPatch(weight=after))
    assert found.weight == after
    told = [(each.source, each.target) for each in found.differences]
    assert [(float(a), float(b)) for a, b in told] == ([(before, after)] if before != after else [])
