"""Names of states: the numbering of Pods and jobs does not matter, everything else does."""

from hypothesis import given
from hypothesis import strategies as st

from runyard.dispatch.machine.changes import Context
from runyard.sim.proof.explore import every
from runyard.sim.proof.model import Model, Settings
from runyard.sim.proof.naming import Namer
from runyard.sim.proof.rows import Database
from runyard.sim.proof.state import Hook, JobLane, Lane, Pod, State, Task, start

SCENE = Model(Database(Context(), limit=2, may_lose=True), Settings(disturbances=2))


def other(number: int | None) -> int | None:
    return number if number is None or number < 0 else 1 - number


def pods_swapped(state: State) -> State:
    """The same state, told by somebody who numbers the Pods the other way round."""
    jobs = [JobLane(j.row, j.old, j.status, other(j.runner), j.late) for j in state.jobs]
    tasks = [
        Task(t.kind, 1 - t.pod if t.pod >= 0 else t.pod, t.generation, t.mint, t.stamp, t.job)
        for t in state.tasks
    ]
    hooks = [Hook(h.kind, h.job, 1 - h.runner if h.runner >= 0 else h.runner) for h in state.hooks]
    return State(
        (state.lanes[1], state.lanes[0]),
        (jobs[0], jobs[1]),
        tuple(sorted(tasks)),
        tuple(sorted(hooks)),
        state.undo,
        state.left,
    )


def walk(choices: list[int]) -> State:
    state = start(jobs=2, pods=2, disturbances=2)
    for choice in choices:
        steps = list(every(SCENE, state))
        if steps:  # else everything is at rest
            state = steps[choice % len(steps)][1]
    return state


@given(st.lists(st.integers(0, 10_000), max_size=25))
def test_a_state_is_found_again_by_its_name(choices: list[int]) -> None:
    namer = Namer()
    name = namer.name(walk(choices))
    assert namer.name(namer.state(name)) == name


@given(st.lists(st.integers(0, 10_000), max_size=25))
def test_the_numbering_of_pods_does_not_matter(choices: list[int]) -> None:
    namer = Namer()
    state = walk(choices)
    assert namer.name(state) == namer.name(pods_swapped(state))


@given(st.lists(st.integers(0, 10_000), max_size=25))
def test_twins_have_twin_futures(choices: list[int]) -> None:
    namer = Namer()
    state = walk(choices)
    futures = {namer.name(after) for _, after in every(SCENE, state)}
    assert {namer.name(after) for _, after in every(SCENE, pods_swapped(state))} == futures


def test_different_states_have_different_names() -> None:
    namer = Namer()
    state = start(jobs=2, pods=2, disturbances=0)
    stamped = State((Lane(pod=Pod(stamped=True)), Lane()), state.jobs)
    names = {namer.name(each) for each in (state, stamped, start(jobs=2, pods=2, disturbances=1))}
    assert len(names) == 3
