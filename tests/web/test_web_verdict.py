"""The headline of the dashboard is what affects the most jobs."""

from collections import Counter

import msgspec
import pytest
from tests.dispatch.dispatchharness import Harness, play
from tests.web.web_views import SETTINGS, look

from runyard.dispatch.matching.values import Hold
from runyard.embedded.github.identity import KeyPair
from runyard.kube.objects import Pod as KubePod
from runyard.web.cluster import Cluster
from runyard.web.explain.values import Constraint
from runyard.web.fleet import runners
from runyard.web.settings import Settings
from runyard.web.values import Alarm, Host, Pool, PoolState, Totals
from runyard.web.verdict import stuck_hosts, unstarted, verdict
from runyard.wire import names
from runyard.wire.instants import to_rfc3339


def test_one_odd_label_is_not_the_headline_of_a_full_queue(
    database_url: str, app_keys: KeyPair
) -> None:
    async def scenario(harness: Harness) -> None:
        await harness.pool(replicas=1)
        await harness.queued(labels=("self-hosted", "shape-mac", "gpu"))
        for _ in range(4):
            await harness.queued()
        few = Settings(jobs_shown=1)  # the odd one is the oldest, and the only one that is shown
        for settings in (SETTINGS, few):
            view = await look(harness, settings)
            assert (view.verdict.reason, view.verdict.jobs) == (Constraint.NO_RUNNER, 4)
            assert view.verdict.tone == "wait"
        for _ in range(4):
            await harness.queued(labels=("self-hosted", "shape-mac", "gpu"))
        view = await look(harness, few)
        assert (view.verdict.reason, view.verdict.jobs) == (Constraint.NO_POOL, 5)
        assert view.verdict.tone == "warn"

    play(scenario, database_url, app_keys)


OK = Host(name="a", tone="good", state="ready")
DOWN = Host(name="b", tone="bad", state="silent")
LOW = Alarm(code="budget-low", severity="warning", title="t", text="f")
HEADLINES: dict[
    str, tuple[dict[Constraint, int], tuple[Host, ...], tuple[Alarm, ...], str, str]
] = {
    "most jobs": (
        {Constraint.NO_POOL: 2, Constraint.TENANT_CAP: 3},
        (OK,),
        (),
        "tenant-cap",
        "wait",
    ),
    "a tie is the operator's": (
        {Constraint.NO_RUNNER: 2, Constraint.NO_POOL: 2},
        (OK,),
        (),
        "no-pool",
        "warn",
    ),
    "an approval": ({Constraint.APPROVAL: 1}, (OK,), (), "approval", "wait"),
    "a host before jobs that will start": (
        {Constraint.NO_RUNNER: 9},
        (OK, DOWN),
        (),
        "hosts-not-ready",
        "warn",
    ),
    "jobs that never start before a host": (
        {Constraint.NO_POOL: 9},
        (OK, DOWN),
        (),
        "no-pool",
        "warn",
    ),
    "a warning before jobs that will start": (
        {Constraint.NO_RUNNER: 9},
        (OK,),
        (LOW,),
        "budget-low",
        "warn",
    ),
    "nothing waits": ({}, (OK,), (), "no-pools", "off"),
}


@pytest.mark.parametrize(
    ("holds", "hosts", "alarms", "reason", "tone"), HEADLINES.values(), ids=HEADLINES
)
def test_the_headline_is_what_affects_the_most_jobs(
    holds: dict[Constraint, int],
    hosts: tuple[Host, ...],
    alarms: tuple[Alarm, ...],
    reason: str,
    tone: str,
) -> None:
    totals = Totals(waiting=sum(holds.values()))
    shown = verdict(alarms, totals, hosts, (), holds=Counter(holds))
    assert (shown.reason, shown.tone) == (reason, tone)
    assert shown.jobs == next((n for hold, n in holds.items() if hold == reason), 0)


@pytest.mark.parametrize(("reason", "shown"), [("Backoff", True), ("ProvisioningCeiling", False)])
def test_a_pool_that_cannot_start_runners_is_not_a_healthy_fleet(
    reason: str, *, shown: bool
) -> None:
    unfilled = PoolState(type="Filled", holds=False, reason=reason, text="they fail at once")
    pool = Pool(name="mac", desired=2, conditions=(unfilled,))
    found = verdict((), Totals(waiting=3), (OK,), (pool,), holds=Counter({Constraint.NO_RUNNER: 3}))
    assert (found.reason, found.tone) == (
        ("pool-not-filled", "warn") if shown else ("no-runner", "wait")
    )
    assert ("mac" in found.title) == shown


def pod(
    name: str, waits: str = "", *, age: float = 600.0, host: str = "a", **status: object
) -> KubePod:
    """A Pod of the pool `mac` on a host, and why its container waits."""
    state = {"waiting": {"reason": waits, "message": f"because of {waits}"}} if waits else {}
    raw = {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {names.RUNNER_POOL: "mac"},
            "creationTimestamp": to_rfc3339(NOW - age),
        },
        "spec": {"nodeName": host},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "r", "state": state}]}
        | status,
    }
    return msgspec.convert(raw, KubePod)


NOW = 1_800_000_000.0
CREATE_FAILED = {"reason": names.REASON_CREATE_FAILED}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
FLEETS: dict[str, tuple[list[KubePod], bool]] = {
    "no image": ([pod("x", "ImageMissing", **CREATE_FAILED), pod("y", "SlotsFull")], True),
    "no image since 20 s": ([pod("x", "ImageMissing", age=20.0, **CREATE_FAILED)], True),
    "no image since 5 s": ([pod("x", "ImageMissing", age=5.0, **CREATE_FAILED)], False),
    "no slot, for ever": ([pod("x", "SlotsFull"), pod("y", "SlotsFull")], True),
    "no slot yet": ([pod("x", "SlotsFull", age=30.0)], False),
    "failed": ([pod("x", phase="Failed", reason="TartRunFailed")], True),
    "no host": ([pod("x", host="", conditions=[UNSCHEDULED])], True),
    "a pull that advances": (
        [pod("x", "ImageMissing", **CREATE_FAILED), pod("y", "Pulling")],
        False,
    ),
    "a guest that boots": ([pod("x", "SlotsFull"), pod("y", phase="Running")], False),
    "fresh ones": ([pod("x"), pod("y")], False),
    "no Pods": ([], False),
}


@pytest.mark.parametrize(("pods", "named"), FLEETS.values(), ids=FLEETS)
def test_a_pool_whose_runners_cannot_start_is_no_healthy_fleet_although_no_job_waits(
    pods: list[KubePod], *, named: bool
) -> None:
    found = runners(Cluster(pods=tuple(pods)), (), cluster_at=NOW)
    starting = sum(each.state == "starting" for each in found)
    pool = Pool(name="mac", desired=2, starting=starting)
    late = unstarted((pool,), found, now=NOW)
    shown = verdict((), Totals(), (OK,), (pool,), holds=Counter(), unstarted=late)
    assert (shown.reason, shown.tone) == (
        ("pool-not-filled", "warn") if named else ("no-job-waits", "good")
    )
    assert ("mac" in shown.title) == named
    warned = verdict((LOW,), Totals(), (OK,), (pool,), holds=Counter(), unstarted=late)
    assert warned.reason == ("pool-not-filled" if named else "budget-low"), "an empty pool is worse"
    for works in (msgspec.structs.replace(pool, idle=1), msgspec.structs.replace(pool, busy=1)):
        assert unstarted((works,), found, now=NOW) == ()
    for empty in (
        msgspec.structs.replace(pool, desired=0),
        msgspec.structs.replace(pool, leaving=True),
    ):
        assert unstarted((empty,), found, now=NOW) == ()


@pytest.mark.parametrize(
    ("pods", "named"),
    [
        ([pod("x", "NoSpace", **CREATE_FAILED), pod("y", host="b", phase="Running")], True),
        ([pod("x", "NoSpace", age=30.0, **CREATE_FAILED)], False),
        ([pod("x", "SlotsFull")], False),
        ([pod("x", host="", conditions=[UNSCHEDULED])], False),
        ([pod("x", "Pulling")], False),
    ],
    ids=["no space", "for a moment", "a slot in use", "no host", "a pull"],
)
def test_a_host_that_starts_nothing_is_no_healthy_fleet_although_another_one_works(
    pods: list[KubePod], *, named: bool
) -> None:
    found = runners(Cluster(pods=tuple(pods)), (), cluster_at=NOW)
    pool = Pool(name="mac", desired=2, starting=1, busy=1)
    stuck = stuck_hosts((pool,), found, now=NOW)
    holds = Counter({Constraint.NO_RUNNER: 3})
    shown = verdict((), Totals(waiting=3), (OK,), (pool,), holds=holds, stuck_hosts=stuck)
    assert (shown.reason, shown.tone) == (
        ("host-starts-nothing", "warn") if named else ("no-runner", "wait")
    )
    assert [each.host for each in stuck] == ["a"] * named
    assert stuck_hosts((msgspec.structs.replace(pool, busy=0),), found, now=NOW) == ()


def test_a_long_reason_is_not_cut_in_the_middle_of_a_word() -> None:
    full = f"tart pull of registry/mac@sha256:{'a' * 64}: there isn't enough space"
    for message in (full, "some words " * 100):
        starting = {"waiting": {"reason": names.REASON_CREATE_FAILED, "message": message}}
        status = [{"name": "r", "state": starting}]
        found = runners(Cluster(pods=(pod("x", containerStatuses=status),)), (), cluster_at=NOW)
        pool = Pool(name="mac", desired=1, starting=1)
        late = unstarted((pool,), found, now=NOW)
        shown = verdict((), Totals(), (OK,), (pool,), holds=Counter(), unstarted=late).text
        assert shown.endswith((f"{full}.", " words …", " some …"))


@pytest.mark.parametrize("hold", list(Constraint))
def test_a_headline_about_one_job_speaks_of_several(hold: Constraint) -> None:
    title = verdict((), Totals(waiting=1), (OK,), (), holds=Counter({hold: 1})).title
    assert not {"they", "their", "them", "are"} & set(title.split()), title


def test_every_hold_of_the_matcher_has_a_headline() -> None:
    for hold in Hold:
        shown = verdict((), Totals(waiting=1), (), (), holds=Counter({Constraint(hold.value): 1}))
        assert (shown.reason, shown.jobs) == (hold.value, 1)
