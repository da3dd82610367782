"""Tests the limit on starts on shared hosts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.pools.plans.admission import Admission, admit, ceiling
from runyard.pools.plans.reasons import Blocked
from runyard.pools.plans.views import FleetView


def fleet(**more):
    values = {"ceiling": 4, "provisioning": 0, "provisioning_here": 0, "healthy_nodes": 1}
    return FleetView(**{**values, **more})


@pytest.mark.parametrize(
    ("gap", "view", "expected"),
    [
        pytest.param(3, None, Admission(3), id="not-limited"),
        pytest.param(-2, None, Admission(0), id="no-gap"),
        pytest.param(0, fleet(healthy_nodes=0), Admission(0), id="nothing-missing"),
        pytest.param(3, fleet(), Admission(3), id="fits"),
        pytest.param(9, fleet(), Admission(4, Blocked.FLEET_CAP), id="ceiling"),
        pytest.param(
            3, fleet(healthy_nodes=0), Admission(0, Blocked.NO_HEALTHY_NODE), id="no-host"
        ),
        pytest.param(3, fleet(provisioning=4), Admission(0, Blocked.FLEET_CAP), id="full"),
        pytest.param(3, fleet(provisioning=9), Admission(0, Blocked.FLEET_CAP), id="over-full"),
        pytest.param(
            9, fleet(starved_siblings=1), Admission(3, Blocked.POOL_SHARE), id="leave-one"
        ),
        pytest.param(
            9, fleet(starved_siblings=9), Admission(1, Blocked.POOL_SHARE), id="at-least-one"
        ),
        pytest.param(
            9,
            fleet(provisioning=3, provisioning_here=3, starved_siblings=1),
            Admission(0, Blocked.POOL_SHARE),
            id="the-last-start-is-the-siblings",
        ),
    ],
)
def test_the_ceiling_is_shared(gap, view, expected):
    assert admit(gap, view) == expected


def test_nothing_is_created_during_a_backoff():
    assert admit(3, None, held=True) == Admission(0, Blocked.BACKOFF)
    assert admit(0, None, held=True) == Admission(0)


@given(
    gap=st.integers(0, 50),
    limit=st.integers(1, 20),
    busy=st.integers(0, 30),
    here=st.integers(0, 30),
    starved=st.integers(0, 5),
)
def test_the_ceiling_is_never_exceeded(gap, limit, busy, here, starved):
    view = fleet(
        ceiling=limit, provisioning=busy + here, provisioning_here=here, starved_siblings=starved
    )
    count = admit(gap, view).count
    assert 0 <= count <= gap
    assert count == 0 or busy + here + count <= limit
    if gap and not here and busy < limit:
        assert count >= 1  # a pool without a starting runner may start one


@pytest.mark.parametrize(
    ("limits", "expected"), [((), 4), ((4, 2, 9), 2), ((0,), 4), ((-1, 6), 4), ((8,), 8)]
)
def test_the_lowest_ceiling_of_the_siblings_counts(limits, expected):
    assert ceiling(limits) == expected
