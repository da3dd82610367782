"""What a wish changes: no more than it says, and nothing if it is so already."""

from hypothesis import given
from hypothesis import strategies as st

from runyard.dispatch.people.differences import Now, wish
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


def test_a_repository_that_is_not_known_yet_begins_with_the_usual_share() -> None:
    patch = TenantPatch(repositories=(RepositoryPatch(repository="a/b", priority=3),))
    found = wish(Now(weight=1, paused=False), patch)
    assert found.repositories == (Repository(repository="a/b", weight=1.0, priority=3),)
    assert found.differences[0].source == "weight 1, priority 0"
