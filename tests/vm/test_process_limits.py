"""A limit that cannot be held on a machine is not claimed there, and nobody's control group is divided but our own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.vm.process.limits import (
    CONTROLLERS,
    Division,
    Ground,
    Means,
    division,
    holds,
    in_words,
    leaf_limits,
    missing,
    processes_by,
)

ALL = CONTROLLERS
FOREIGN = Division(why="this control group was not delegated to us")

DIVISIONS: dict[str, tuple[Ground, Division]] = {
    "the true root, where the rule does not apply": (
        Ground(true_root=True, top=True, inhabitants=90, offered=ALL),
        Division(enable=ALL),
    ),
    "a container's own group, with everybody in it": (
        Ground(top=True, inhabitants=3, offered=ALL),
        Division(enable=ALL, step_aside=True),
    ),
    "a container that shares its group with the world outside": (
        Ground(top=True, inhabitants=3, hidden=True, offered=ALL),
        Division(why="processes that cannot be seen from here live in this control group"),
    ),
    "a unit that systemd delegated to root": (
        Ground(delegated=True, inhabitants=2, offered=ALL),
        Division(enable=ALL, step_aside=True),
    ),
    "a scope of a plain user's own manager": (
        Ground(owned=True, inhabitants=2, offered=("memory", "pids")),
        Division(
            enable=("memory", "pids"),
            step_aside=True,
            why="this control group offers no cpu controller",
        ),
    ),
    "somebody's login session": (Ground(inhabitants=5, offered=ALL), FOREIGN),
    "an empty group that was prepared for us": (Ground(offered=ALL), Division(enable=ALL)),
    "divided already, by the agent before": (
        Ground(top=True, offered=ALL, enabled=ALL),
        Division(),
    ),
    "divided in part": (
        Ground(owned=True, offered=ALL, enabled=("pids",)),
        Division(enable=("cpu", "memory")),
    ),
    "controllers that belong to version 1": (
        Ground(true_root=True, inhabitants=90, offered=("hugetlb",)),
        Division(why="this control group offers no cpu nor memory nor pids controller"),
    ),
}


@pytest.mark.parametrize(("ground", "wanted"), DIVISIONS.values(), ids=list(DIVISIONS))
def test_a_control_group_is_divided_as_far_as_it_is_ours(ground: Ground, wanted: Division) -> None:
    assert division(ground) == wanted


controllers = st.lists(st.sampled_from((*ALL, "io", "hugetlb")), unique=True).map(tuple)
grounds = st.builds(
    Ground,
    true_root=st.booleans(),
    top=st.booleans(),
    owned=st.booleans(),
    delegated=st.booleans(),
    inhabitants=st.integers(0, 3),
    hidden=st.booleans(),
    offered=controllers,
    enabled=controllers,
)


@given(grounds)
def test_nobody_is_moved_who_is_not_ours_and_nothing_is_enabled_that_is_not_there(
    ground: Ground,
) -> None:
    plan = division(ground)
    assert all(name in ground.offered and name not in ground.enabled for name in plan.enable)
    if plan.step_aside:
        assert plan.enable and ground.inhabitants and not ground.hidden
        assert ground.top or ground.owned or ground.delegated
    elif plan.enable:  # the kernel would refuse, or somebody would be left without his group
        assert ground.true_root or not ground.inhabitants
    short = [name for name in ALL if name not in (*plan.enable, *ground.enabled)]
    assert plan.why or not short


LEAVES = {
    "everything": (ALL, (1500, 512, 64), "cpu.max=150000 100000 memory.max=536870912 memory.swap.max=0 pids.max=64"),
    "no controller": ((), (1500, 512, 64), ""),
    "pids alone": (("pids",), (1500, 512, 64), "pids.max=64"),
    "less than the kernel's least share": (("cpu",), (1, 0, 0), "cpu.max=1000 100000"),
    "as much as there is": (ALL, (0, 0, 0), ""),
}  # fmt: skip


@pytest.mark.parametrize(("has", "asked", "wanted"), LEAVES.values(), ids=list(LEAVES))
def test_a_leaf_is_told_its_limits(
    has: tuple[str, ...], asked: tuple[int, int, int], wanted: str
) -> None:
    cpu, memory, pids = asked
    told = leaf_limits(has, cpu_milli=cpu, memory_mb=memory, pids=pids)
    assert " ".join(f"{name}={value}" for name, value in told) == wanted


GROUP, USER, NOT = "held by control group", "held by user", "not held"
HOLDS: dict[str, tuple[Means, tuple[str, str, str]]] = {
    "all controllers": (Means(controllers=ALL, root=True), (GROUP, GROUP, GROUP)),
    "root without controllers, VMs with users": (
        Means(own_users=True, root=True, kernel=(6, 1)),
        (NOT, NOT, USER),
    ),
    "a plain user's sandbox": (Means(user_namespace=True, kernel=(5, 14)), (NOT, NOT, USER)),
    "the same on an old kernel": (Means(user_namespace=True, kernel=(5, 13)), (NOT, NOT, NOT)),
    "root's sandbox without users: root's processes do not count": (
        Means(user_namespace=True, root=True, kernel=(6, 1)),
        (NOT, NOT, NOT),
    ),
    "nothing at all": (Means(kernel=(6, 1)), (NOT, NOT, NOT)),
    "not Linux": (Means(own_users=True, root=True), (NOT, NOT, USER)),
    "a group with memory alone": (Means(controllers=("memory",)), (NOT, GROUP, NOT)),
    "a group that counts better than users": (
        Means(controllers=("pids",), own_users=True, root=True),
        (NOT, NOT, GROUP),
    ),
}


@pytest.mark.parametrize(("means", "wanted"), HOLDS.values(), ids=list(HOLDS))
def test_what_is_not_held_is_said_to_be_not_held(
    means: Means, wanted: tuple[str, str, str]
) -> None:
    cpu, memory, processes = wanted
    words = in_words(holds(means), "the reason")
    assert words.startswith(f"cpu: {cpu}, memory: {memory}, processes: {processes}, disk: watched")
    assert words.endswith("(the reason)") == (NOT in wanted)
    assert len(missing(holds(means))) == wanted.count(NOT)
    assert bool(processes_by(means)) == (processes != NOT)
