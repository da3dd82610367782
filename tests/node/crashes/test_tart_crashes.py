"""After a kill -9 of agent, shim, `tart run` or guest at any effect, no VM runs twice and every job has one result.

The verdict runs a rotating sample in one of the two polling modes, the long tier everything. One case is run again with
`PYTHONPATH=tools python -m tests.node.crashes 'its name'`.
"""

import asyncio

import pytest
from tests.node.crashes.effects import AGENT, SHIM
from tests.node.crashes.host import MODES
from tests.node.crashes.matrix import Summary, open_matrix
from tests.tiers import ROTATION, pick, sample

LEAST = {AGENT: 35, SHIM: 8}  # effects; a life has more, fewer would mean that some are not seen


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_kill_at_an_effect_runs_no_vm_twice_and_loses_no_result() -> None:
    modes = pick(fast=(), ci=(MODES[ROTATION % len(MODES)],), long=MODES) or MODES[:1]

    async def scenario() -> Summary:
        async with open_matrix(pick(fast=2, ci=2, long=4)) as matrix:
            found = await matrix.discover(matrix.hosts[0], modes)
            for mode in modes:
                for role, least in LEAST.items():
                    seen = {c.effect for c in found if (c.mode, c.effect.role) == (mode, role)}
                    assert len(seen) >= least, f"{mode}: only {len(seen)} effects of {role}"
            summary = Summary()
            async for outcome in matrix.run(sample(found, of=12, fast=24)):
                summary.add(outcome)
            return summary

    summary = asyncio.run(scenario())
    print(summary)  # noqa: T201 a result
    assert not summary.failures, "\n".join(summary.failures)
    assert summary.missed <= 1 + summary.cases // 20, f"too few moments were reached: {summary}"
