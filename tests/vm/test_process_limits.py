"""Tests which limits are enforced, and that only a delegated control group is split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.vm.process.limits import (
    CONTROLLERS,
    CgroupFacts,
    Mechanisms,
    SplitPlan,
    describe,
    leaf_limits,
    limit_statuses,
    process_limit_by,
    split_plan,
    unenforced,
)

ALL = CONTROLLERS
FOREIGN = SplitPlan(why="this control group was not delegated to us")

SPLITS: dict[str, tuple[CgroupFacts, SplitPlan]] = {
    "the true root, where the rule does not apply": (
        CgroupFacts(true_root=True, top=True, processes=90, offered=ALL),
        SplitPlan(enable=ALL),
    ),
    "a container's own group, with all its processes": (
        CgroupFacts(top=True, processes=3, offered=ALL),
        SplitPlan(enable=ALL, move_processes=True),
    ),
    "a container that shares its group with the host": (
        CgroupFacts(top=True, processes=3, hidden=True, offered=ALL),
        SplitPlan(why="this control group holds processes that are not visible to us"),
    ),
    "a unit that systemd delegated to root": (
        CgroupFacts(delegated=True, processes=2, offered=ALL),
        SplitPlan(enable=ALL, move_processes=True),
    ),
    "a scope of a plain user's own manager": (
        CgroupFacts(owned=True, processes=2, offered=("memory", "pids")),
        SplitPlan(
            enable=("memory", "pids"),
            move_processes=True,
            why="this control group offers no cpu controller",
        ),
    ),
    "a user's login session": (CgroupFacts(processes=5, offered=ALL), FOREIGN),
    "an empty group that was prepared for us": (CgroupFacts(offered=ALL), SplitPlan(enable=ALL)),
    "already split by a previous agent": (
        CgroupFacts(top=True, offered=ALL, enabled=ALL),
        SplitPlan(),
    ),
    "split in part": (
        CgroupFacts(owned=True, offered=ALL, enabled=("pids",)),
        SplitPlan(enable=("cpu", "memory")),
    ),
    "controllers that belong to version 1": (
        CgroupFacts(true_root=True, processes=90, offered=("hugetlb",)),
        SplitPlan(why="this control group offers no cpu nor memory nor pids controller"),
    ),
}


@pytest.mark.parametrize(("facts", "wanted"), SPLITS.values(), ids=list(SPLITS))
def test_a_control_group_is_split_only_if_it_was_delegated(
    facts: CgroupFacts, wanted: SplitPlan
) -> None:
    assert split_plan(facts) == wanted


controllers = st.lists(st.sampled_from((*ALL, "io", "hugetlb")), unique=True).map(tuple)
all_facts = st.builds(
    CgroupFacts,
    true_root=st.booleans(),
    top=st.booleans(),
    owned=st.booleans(),
    delegated=st.booleans(),
    processes=st.integers(0, 3),
    hidden=st.booleans(),
    offered=controllers,
    enabled=controllers,
)


@given(all_facts)
def test_only_own_processes_are_moved_and_only_offered_controllers_enabled(
    facts: CgroupFacts,
) -> None:
    plan = split_plan(facts)
    assert all(name in facts.offered and name not in facts.enabled for name in plan.enable)
    if plan.move_processes:
        assert plan.enable and facts.processes and not facts.hidden
        assert facts.top or facts.owned or facts.delegated
    elif plan.enable:  # else the kernel would refuse
        assert facts.true_root or not facts.processes
    short = [name for name in ALL if name not in (*plan.enable, *facts.enabled)]
    assert plan.why or not short


LEAVES = {
    "everything": (ALL, (1500, 512, 64), "cpu.max=150000 100000 memory.max=536870912 memory.swap.max=0 pids.max=64"),
    "no controller": ((), (1500, 512, 64), ""),
    "pids alone": (("pids",), (1500, 512, 64), "pids.max=64"),
    "less than the kernel's least share": (("cpu",), (1, 0, 0), "cpu.max=1000 100000"),
    "no limit": (ALL, (0, 0, 0), ""),
}  # fmt: skip


@pytest.mark.parametrize(("controllers", "requested", "wanted"), LEAVES.values(), ids=list(LEAVES))
def test_the_limits_of_a_leaf_follow_from_the_controllers(
    controllers: tuple[str, ...], requested: tuple[int, int, int], wanted: str
) -> None:
    cpu, memory, pids = requested
    limits = leaf_limits(controllers, cpu_milli=cpu, memory_mb=memory, pids=pids)
    assert " ".join(f"{name}={value}" for name, value in limits) == wanted


GROUP, USER, NOT = "enforced by control group", "enforced by user", "not enforced"
ENFORCED: dict[str, tuple[Mechanisms, tuple[str, str, str]]] = {
    "all controllers": (Mechanisms(controllers=ALL, root=True), (GROUP, GROUP, GROUP)),
    "root without controllers, VMs with users": (
        Mechanisms(own_users=True, root=True, kernel=(6, 1)),
        (NOT, NOT, USER),
    ),
    "a plain user's sandbox": (Mechanisms(user_namespace=True, kernel=(5, 14)), (NOT, NOT, USER)),
    "the same on an old kernel": (Mechanisms(user_namespace=True, kernel=(5, 13)), (NOT, NOT, NOT)),
    "root's sandbox without users: root's processes do not count": (
        Mechanisms(user_namespace=True, root=True, kernel=(6, 1)),
        (NOT, NOT, NOT),
    ),
    "nothing at all": (Mechanisms(kernel=(6, 1)), (NOT, NOT, NOT)),
    "not Linux": (Mechanisms(own_users=True, root=True), (NOT, NOT, USER)),
    "a group with memory alone": (Mechanisms(controllers=("memory",)), (NOT, GROUP, NOT)),
    "a group that counts better than users": (
        Mechanisms(controllers=("pids",), own_users=True, root=True),
        (NOT, NOT, GROUP),
    ),
}


@pytest.mark.parametrize(("means", "wanted"), ENFORCED.values(), ids=list(ENFORCED))
def test_limits_that_are_not_enforced_are_described_so(
    means: Mechanisms, wanted: tuple[str, str, str]
) -> None:
    cpu, memory, processes = wanted
    words = describe(limit_statuses(means), "the reason")
    assert words.startswith(f"cpu: {cpu}, memory: {memory}, processes: {processes}, disk: watched")
    assert words.endswith("(the reason)") == (NOT in wanted)
    assert len(unenforced(limit_statuses(means))) == wanted.count(NOT)
    assert bool(process_limit_by(means)) == (processes != NOT)
