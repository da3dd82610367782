"""Runs each case on each driver."""

import contextlib

import pytest
from tests.conftest import Absent
from tests.contract_table import DRIVER
from tests.vm.contract.harnesses import DRIVERS, small_disk
from tests.vm.contract.offers import Scenario
from tests.vm.contract.running import Run

SLOW = {"tart"}  # each of its commands is a program


@pytest.fixture(
    params=[
        pytest.param(name, id=name, marks=pytest.mark.slow if name in SLOW else ())
        for name in DRIVERS
    ]
)
def run(request: pytest.FixtureRequest, absent: Absent) -> Run:
    request.node.user_properties.append((DRIVER, request.param))

    def run_scenario(scenario: Scenario, *, small: bool = False) -> None:
        with contextlib.ExitStack() as stack:
            if small and request.param != "sim":
                scenario.small_disk = stack.enter_context(small_disk(absent))  # type: ignore[attr-defined]  # a function of this test alone
            DRIVERS[request.param](scenario, absent)

    return run_scenario
