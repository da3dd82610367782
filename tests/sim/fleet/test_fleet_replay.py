"""A run is its number: the same again in this process, and in another one with another hash seed."""

import os
import subprocess
import sys

import msgspec
import pytest
from tests.tiers import pick

from runyard.sim.faults import parse
from runyard.sim.run import Stage, replay
from runyard.sim.shape import Shape

SHAPE = Shape(seed=3, hours=0.1, hosts=1, jobs_per_day=2000.0, faults=parse("all"))


def elsewhere(hash_seed: str) -> dict[str, object]:
    words = "sim --seed 3 --hours 0.1 --hosts 1 --faults all --json"
    done = subprocess.run(
        [sys.executable, "-m", "runyard.cli.main", *words.split()],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=110,
    )
    return msgspec.json.decode(done.stdout, type=dict[str, object])


@pytest.mark.slow
def test_the_same_number_gives_the_same_run_whatever_the_process_and_its_hash_order(
    stage: Stage,
) -> None:
    first = stage.simulate(SHAPE)
    assert first.ok, first.failure
    there = elsewhere("12345")
    assert (there["trace"], there["steps"]) == (first.digest, first.steps)
    assert there["counts"] == first.counts
    again = stage.simulate(SHAPE)  # on a used server, in a used process
    assert again.digest == first.digest


@pytest.mark.slow
def test_another_number_gives_another_run(stage: Stage) -> None:
    shape = msgspec.structs.replace(SHAPE, hours=0.02, faults=())
    assert (
        stage.simulate(shape).digest
        != stage.simulate(msgspec.structs.replace(shape, seed=4)).digest
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_longer_run_is_the_same_again(stage: Stage) -> None:
    shape = Shape(seed=1, hours=pick(fast=0.4, ci=0.4, long=1.5), faults=parse("all"))
    first, again = stage.simulate(shape), stage.simulate(shape)
    assert first.ok, first.failure
    assert first.digest == again.digest


def test_the_replay_command_names_everything_that_differs_from_the_usual() -> None:
    text = replay(SHAPE)
    assert text.startswith("runyard sim --seed 3 --hours 0.1 --faults crash-server,")
    assert text.endswith("server-deploy --hosts 1")
    assert replay(Shape()) == "runyard sim --seed 1 --hours 1 --faults none"


@pytest.mark.slow
def test_a_run_that_is_watched_is_the_same_run(stage: Stage) -> None:
    shape = Shape(seed=3, hours=0.1, faults=parse("all"))
    seen: list[float] = []
    watched = stage.simulate(shape, progress=lambda fleet: seen.append(fleet.clock.monotonic()))
    assert seen
    assert watched.digest == stage.simulate(shape).digest
