"""Each constraint comes from the deciding component with its numbers, and the chain leads to it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from tests.dispatch.test_dispatch_matching import snapshots
from tests.web.explain.explain_samples import (
    LABELS,
    NOW,
    a_context,
    a_job,
    a_pod,
    a_pool,
    a_runner,
    a_slot,
    an_alarm,
    condition,
    waits,
)

from runyard.dispatch.machine.values import Fence, SlotState
from runyard.dispatch.matching.match import match
from runyard.dispatch.matching.values import Held, Hold, Matching, Snapshot
from runyard.dispatch.modes import Reconciler
from runyard.telemetry.conditions import GITHUB_REFUSED, GITHUB_UNREACHABLE
from runyard.web.explain.context import Context, DispatchLimits, LogEntry, SlotFacts
from runyard.web.explain.explainer import explain_runner
from runyard.web.explain.jobs import explain_job, overdue
from runyard.web.explain.pods import explain_pod
from runyard.web.explain.pools import explain_pool
from runyard.web.explain.reasons import Ends, What
from runyard.web.explain.slots import explain_slot
from runyard.web.explain.values import Constraint, Step, explained
from runyard.web.explain.views import step_view, summary, text
from runyard.web.values import Host, Source
from runyard.wire import names
from runyard.wire.reasons import Reason, render
from runyard.wire.reasons_dispatch import Holding


class RateBudget(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    points: float
    capacity: float
    closed: float = 0.0
    hour_limit: int | None = None
    hour_left: int | None = None
    hour_ends_in: float = 0.0


PAUSED = Holding.TENANT_PAUSED.because(tenant="acme")


def binding(chain: tuple[Step, ...]) -> Step:
    return explained("job", "7", chain, at=NOW).binding


def held(hold: Hold, reason: Reason = PAUSED, *, pools: tuple[str, ...] = ()) -> Matching:
    one = Held(
        tenant="acme",
        repository="acme/app",
        labels=LABELS,
        hold=hold,
        reason=reason,
        pools=pools,
    )
    return Matching(held=(one,))


@pytest.mark.parametrize("hold", [h for h in Hold if h is not Hold.NEXT], ids=str)
def test_what_the_matcher_held_is_repeated_with_its_code_and_numbers(hold: Hold) -> None:
    reason = Holding.CPU_BUDGET.because(tenant="acme", platform="macos", left=1, limit=5, needed=4)
    (step,) = explain_job(a_job(), None, a_context(matching=held(hold, reason)))
    assert (step.constraint.value, step.code) == (hold.value, Holding.CPU_BUDGET)
    assert step.what == reason
    assert step.numbers == {"left": 1, "limit": 5, "needed": 4}
    assert step.ends


@given(snapshots())
def test_a_job_that_is_not_proposed_is_explained_by_the_hold_that_was_returned(
    found: Snapshot,
) -> None:
    matching = match(found, thorough=True)
    given_to = [each.event.job_id for each in matching.proposals]
    holds = {(h.tenant, h.repository, h.labels): h for h in matching.held}
    context = Context(at=NOW, matching=matching)
    for tenant in found.tenants:
        for repository in tenant.repositories:
            for job in repository.jobs:
                facts = a_job(
                    job_id=job.job_id,
                    tenant=tenant.tenant,
                    repository=repository.repository,
                    labels=job.labels,
                )
                first = explain_job(facts, None, context)[0]
                if job.job_id in given_to:
                    assert first.constraint is Constraint.NEXT
                    continue
                said = holds[tenant.tenant, repository.repository, job.labels]
                assert (first.constraint.value, first.code) == (
                    said.hold.value,
                    said.reason.slug,
                )


@pytest.mark.parametrize(
    ("pool", "runners", "named", "number"),
    [
        (a_pool(replicas=0), (), Constraint.SCALED_TO_ZERO, ("replicas", 0)),
        (a_pool(), (("mac-1", "busy"), ("mac-2", "taking")), Constraint.ALL_BUSY, ("busy", 2)),
        (
            a_pool(conditions=[condition("Filled", names.REASON_BACKOFF, "failed", pause=40)]),
            (),
            Constraint.BACKOFF,
            ("pause", 40),
        ),
        (
            a_pool(
                conditions=[condition("Filled", names.REASON_NO_HEALTHY_HOST, "no host", missing=2)]
            ),
            (),
            Constraint.NO_HOST,
            ("missing", 2),
        ),
        (
            a_pool(
                conditions=[condition("Filled", names.REASON_PROVISIONING_CEILING, "4", ceiling=4)]
            ),
            (),
            Constraint.PROVISIONING_CEILING,
            ("ceiling", 4),
        ),
        (
            a_pool(
                conditions=[condition("Rolled", names.REASON_ROLL_CAPPED, "rolls", unavailable=1)]
            ),
            (("mac-2", "busy"),),
            Constraint.ROLL,
            ("unavailable", 1),
        ),
        (
            a_pool(deletionTimestamp="2027-01-15T07:59:00Z"),
            (),
            Constraint.POOL_DELETED,
            None,
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Constraint) else "",
)
def test_a_job_without_a_free_runner_is_held_by_what_holds_its_pool(
    pool: Any, runners: Any, named: Constraint, number: tuple[str, float] | None
) -> None:
    context = a_context(
        pools=[pool],
        runners=tuple(a_runner(name, state=state) for name, state in runners),
        matching=held(Hold.NO_RUNNER, pools=("mac",)),
    )
    chain = explain_job(a_job(), None, context)
    assert chain[0].constraint is Constraint.NO_RUNNER
    found = binding(chain)
    assert (found.constraint, found.subject) == (named, "pool mac")
    assert number is None or found.numbers[number[0]] == number[1]
    assert found.ends
    assert summary(chain) == f"{text(chain[0])}: {text(found)}"


@pytest.mark.parametrize(
    ("pod", "named", "who"),
    [
        (a_pod(status=waits("Pulling")), Constraint.IMAGE_STAGING, "agent of mini-1"),
        (a_pod(status=waits("ContainerCreating")), Constraint.BOOTING, "agent of mini-1"),
        (
            a_pod(status=waits("TartCreateFailed", "no space")),
            Constraint.START_FAILED,
            "agent of mini-1",
        ),
        (a_pod(status={"phase": "Running"}), Constraint.NOT_ASKING, "agent of mini-1"),
        (
            a_pod(
                node="",
                status={
                    "phase": "Pending",
                    "conditions": [
                        {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: cpu"}
                    ],
                },
            ),
            Constraint.NO_HOST,
            "the scheduler",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Constraint) else "",
)
def test_a_runner_on_its_way_is_what_the_job_waits_for(
    pod: Any, named: Constraint, who: str
) -> None:
    context = a_context(
        pools=[a_pool()],
        pods=[pod],
        runners=(a_runner(),),
        matching=held(Hold.NO_RUNNER, pools=("mac",)),
    )
    chain = explain_job(a_job(), None, context)
    assert [step.subject for step in chain] == ["job 7", "pool mac", "pod mac-1"]
    assert (binding(chain).constraint, binding(chain).who) == (named, who)


def test_a_pull_is_explained_without_how_far_it_is() -> None:
    far = "37 % of 52.1 GB, 110 MB/s, about 5 min left"
    pod = a_pod(status=waits("Pulling", far))
    context = a_context(pools=[a_pool()], pods=[pod], runners=(a_runner(),))
    (own,) = explain_pod(pod, context)
    assert text(own).startswith("its host is pulling ") and text(own).endswith(f": {far}")
    assert binding(explain_pool(a_pool(), context)) == own


def test_the_chain_ends_at_the_host_that_is_not_there() -> None:
    lost = Host(name="mini-1", tone="bad", state="silent", reason="no beat", heartbeat_at=NOW - 90)
    context = a_context(
        pools=[a_pool()],
        pods=[a_pod(status=waits("ContainerCreating"))],
        hosts=(lost,),
        runners=(a_runner(),),
        matching=held(Hold.NO_RUNNER, pools=("mac",)),
    )
    found = binding(explain_job(a_job(), None, context))
    assert (found.constraint, found.subject) == (Constraint.HOST_AWAY, "host mini-1")
    assert found.numbers == {"silent": 90}


def test_a_job_that_found_no_runner_is_never_free_because_its_pool_is_well() -> None:
    context = a_context(
        pools=[a_pool()],
        runners=(a_runner(state="idle"), a_runner("mac-2", state="busy")),
        matching=held(Hold.NO_RUNNER, pools=("mac",)),
    )
    chain = explain_job(a_job(), None, context)
    assert binding(chain).constraint is Constraint.NO_RUNNER
    assert chain[-1].constraint is Constraint.AS_ASKED


def test_of_two_pools_the_one_that_will_have_a_runner_first_is_binding() -> None:
    context = a_context(
        pools=[a_pool("mac", replicas=0), a_pool("other")],
        pods=[a_pod(status=waits("ContainerCreating"), labels={names.RUNNER_POOL: "other"})],
        runners=(a_runner(pool="other"),),
        matching=held(Hold.NO_RUNNER, pools=("mac", "other")),
    )
    chain = explain_job(a_job(), None, context)
    assert binding(chain).constraint is Constraint.BOOTING
    assert chain[-1].constraint is Constraint.SCALED_TO_ZERO


def test_without_kubernetes_that_is_why_no_runner_comes() -> None:
    down = Source(name="Kubernetes", state="down", since=NOW - 5, message="no route")
    matching = held(Hold.NO_RUNNER, pools=("mac",))
    context = Context(at=NOW, kubernetes=down, matching=matching)
    assert binding(explain_job(a_job(), None, context)).constraint is Constraint.KUBERNETES_AWAY


SLOTS = [
    (SlotState.OFFERED, -5.0, True, Constraint.MINTING),
    (SlotState.OFFERED, 5.0, True, Constraint.FENCE),
    (SlotState.OFFERED, 5.0, False, Constraint.OUTAGE_GRACE),
    (SlotState.ARMED, -5.0, True, Constraint.REGISTERING),
    (SlotState.ARMED, 5.0, True, Constraint.FENCE),
    (SlotState.EXECUTING, 5.0, True, Constraint.RUNNING),
    (SlotState.DRAINING, 5.0, True, Constraint.DRAINING),
]


@pytest.mark.parametrize(("state", "late", "settled", "named"), SLOTS)
def test_a_job_that_is_meant_for_a_runner_is_where_that_runner_is(
    state: SlotState, late: float, settled: bool, named: Constraint
) -> None:
    slot = a_slot(state, late=late, settled=settled, settles_at=NOW + 25)
    chain = explain_job(a_job(state="bound"), slot, a_context())
    assert binding(chain).constraint is named
    if named is Constraint.OUTAGE_GRACE:
        assert binding(chain).numbers == {"left": 25}
    if named is Constraint.FENCE:
        assert slot.last is not None and binding(chain).cause == slot.last.why
        assert binding(chain).numbers == {"late": 5}


RATE_BUDGET = RateBudget(key="1", points=0, capacity=900, closed=30, hour_limit=5000, hour_left=12)
OUTSIDE = [
    ({"alarms": (an_alarm(GITHUB_UNREACHABLE.code),)}, Constraint.GITHUB_AWAY),
    ({"alarms": (an_alarm(GITHUB_REFUSED.code),)}, Constraint.GITHUB_REFUSED),
    ({"rate_budgets": (RATE_BUDGET,)}, Constraint.GITHUB_BUDGET),
]


@pytest.mark.parametrize(("fault", "named"), OUTSIDE)
def test_whatever_waits_for_github_is_held_by_what_keeps_github_from_answering(
    fault: dict[str, Any], named: Constraint
) -> None:
    context = a_context(matching=held(Hold.GITHUB), **fault)
    for job, slot in (
        (a_job(), None),
        (a_job(verified=False), None),
        (a_job(state="bound"), a_slot(SlotState.OFFERED)),
        (a_job(state="bound"), a_slot(SlotState.ARMED, late=5.0)),
    ):
        assert binding(explain_job(job, slot, context)).constraint is named
    other = RateBudget(key="2", points=0, capacity=900, closed=30)
    calm = a_context(rate_budgets=(other,))
    assert (
        binding(explain_job(a_job(verified=False), None, calm)).constraint is Constraint.ASKED_FIRST
    )


def test_an_account_that_is_passed_over_for_its_used_up_budget_is_held_by_the_budget() -> None:
    excluded = held(Hold.EXCLUDED, Holding.EXCLUDED.because(kind="account", name="acme", left=9.0))
    spent = RateBudget(
        key="1", points=90, capacity=900, hour_limit=5000, hour_left=0, hour_ends_in=90
    )
    assert _named(a_context(matching=excluded, rate_budgets=(spent,))) is Constraint.GITHUB_BUDGET
    full = RateBudget(
        key="1", points=90, capacity=900, hour_limit=5000, hour_left=7, hour_ends_in=90
    )
    assert _named(a_context(matching=excluded, rate_budgets=(full,))) is Constraint.EXCLUDED


def test_points_that_are_too_few_for_a_registration_are_a_used_up_budget() -> None:
    for key in ("1", "app"):
        short = RateBudget(key=key, points=2, capacity=30)
        context = a_context(matching=held(Hold.EXCLUDED), rate_budgets=(short,))
        step = binding(explain_job(a_job(), None, context))
        assert (step.constraint, step.numbers["wait"]) == (Constraint.GITHUB_BUDGET, 6.0)
    enough = RateBudget(key="1", points=5, capacity=30)
    context = a_context(matching=held(Hold.EXCLUDED), rate_budgets=(enough,))
    assert _named(context) is Constraint.EXCLUDED


def _named(context: Context) -> Constraint:
    return binding(explain_job(a_job(), None, context)).constraint


@pytest.mark.parametrize(
    ("state", "more"),
    [
        (SlotState.OFFERED, {}),
        (SlotState.ARMED, {}),
        (SlotState.CLOSED, {"slot": {"fence": Fence.DUE}}),
        (SlotState.CLOSED, {"slot": {"fence": Fence.DUE}, "last": None}),
    ],
)
def test_between_two_fences_without_an_answer_the_fence_is_still_what_is_waited_for(
    state: SlotState, more: dict[str, Any]
) -> None:
    told_at = LogEntry(at=NOW - 200, source="", target=state, reason="queued", actor="server-1")
    slot = a_slot(state, late=-9.0, **{"last": told_at, **more})
    chain = explain_job(a_job(state="bound"), slot, a_context())
    assert binding(chain).constraint is Constraint.FENCE
    away = a_context(alarms=(an_alarm(GITHUB_UNREACHABLE.code),))
    chain = explain_job(a_job(state="bound"), slot, away)
    assert binding(chain).constraint is Constraint.GITHUB_AWAY


def test_a_runner_cannot_connect_to_a_github_that_is_away() -> None:
    armed = a_slot(SlotState.ARMED, late=-9.0)
    away = a_context(alarms=(an_alarm(GITHUB_UNREACHABLE.code),))
    chain = explain_job(a_job(state="bound"), armed, away)
    assert binding(chain).constraint is Constraint.GITHUB_AWAY
    poor = a_context(
        rate_budgets=(RATE_BUDGET,)
    )  # a runner that connects pays nothing from our budget
    chain = explain_job(a_job(state="bound"), armed, poor)
    assert binding(chain).constraint is Constraint.REGISTERING


@pytest.mark.parametrize(
    ("slot", "named"),
    [
        (a_slot(SlotState.ARMED), Constraint.HOST_AWAY),
        (a_slot(SlotState.ARMED, late=5.0), Constraint.FENCE),  # GitHub settles it without the host
        (a_slot(SlotState.OFFERED), Constraint.MINTING),
    ],
)
def test_a_job_and_its_runner_name_the_same_cause_on_a_host_that_is_not_there(
    slot: SlotFacts, named: Constraint
) -> None:
    lost = Host(name="mini-1", tone="bad", state="silent", heartbeat_at=NOW - 90)
    context = a_context(pods=[a_pod()], hosts=(lost,))
    for chain in (
        explain_job(a_job(state="bound"), slot, context),
        explain_runner("mac-1", slot, context),
    ):
        assert binding(chain).constraint is named
        assert chain[-1].constraint is Constraint.HOST_AWAY


def test_an_exhausted_hourly_budget_is_shown_with_its_end() -> None:
    spent = RateBudget(
        key="1", points=90, capacity=900, hour_limit=5000, hour_left=0, hour_ends_in=90
    )
    step = binding(explain_job(a_job(verified=False), None, a_context(rate_budgets=(spent,))))
    assert step.constraint is Constraint.GITHUB_BUDGET
    assert step.numbers == {"wait": 90, "points": 90, "hour_left": 0, "hour_limit": 5000}


@pytest.mark.parametrize(
    ("job", "named"),
    [
        (a_job(state="waiting"), Constraint.APPROVAL),
        (a_job(verified=False), Constraint.ASKED_FIRST),
        (a_job(state="running", runner_name="mac-1"), Constraint.RUNNING),
        (a_job(state="done", conclusion="success"), Constraint.OVER),
    ],
)
def test_a_job_in_another_state_says_so(job: Any, named: Constraint) -> None:
    assert binding(explain_job(job, None, a_context())).constraint is named


@pytest.mark.parametrize(
    ("matching", "what"),
    [
        (None, What.NOT_EXAMINED),
        (Matching(), What.NOT_EXAMINED),
        (
            msgspec.structs.replace(held(Hold.NO_POOL), pools_read=False),
            What.POOLS_UNREAD,
        ),
    ],
    ids=["no result", "newer than the result", "pools not read"],
)
def test_a_job_that_was_not_examined_is_not_said_to_be_matched(
    matching: Matching | None, what: What
) -> None:
    found = binding(explain_job(a_job(), None, a_context(matching=matching)))
    assert (found.constraint, found.what.code) == (Constraint.UNEXAMINED, what)


def test_a_runner_that_stopped_polling_half_a_minute_ago_waits_for_no_work() -> None:
    slot = a_slot(last_beat=NOW - 30)
    assert explain_slot(slot, a_context())[0].constraint is Constraint.NOT_ASKING


def test_a_runner_whose_poll_was_cut_off_a_moment_ago_waits_for_no_work() -> None:
    found = explain_slot(a_slot(poll_dropped=True), a_context())[0]
    assert (found.constraint, found.what.code) == (Constraint.NOT_ASKING, What.POLL_CUT_OFF)


def test_only_a_job_that_is_next_for_too_long_needs_attention() -> None:
    context = a_context(matching=held(Hold.NEXT))
    assert overdue(explain_job(a_job(), None, context), context)
    assert not overdue(explain_job(a_job(enqueued_at=NOW - 3), None, context), context)
    paused = a_context(matching=held(Hold.PAUSED))
    assert not overdue(explain_job(a_job(), None, paused), paused)


@pytest.mark.parametrize(
    ("pod", "slot", "named"),
    [
        (a_pod(), a_slot(), Constraint.NO_JOB),
        (a_pod(), a_slot(last_beat=NOW - 200), Constraint.NOT_ASKING),
        (a_pod(labels={names.POOL_OWNER: "acme"}), a_slot(), Constraint.STAMPED),
        (a_pod(labels={names.POOL_OWNER: "acme"}), None, Constraint.STAMPED),
        (a_pod(labels={names.DRAIN_ELIGIBLE: "true"}), a_slot(), Constraint.ROLL),
        (a_pod(labels={names.OPERATOR_DRAIN: "true"}), a_slot(), Constraint.DRAINING),
        (a_pod(deletionTimestamp="2027-01-15T07:59:00Z"), a_slot(), Constraint.DRAINING),
        (a_pod(status={"phase": "Failed"}), None, Constraint.START_FAILED),
        (a_pod(status={"phase": "Succeeded"}), None, Constraint.OVER),
        (None, a_slot(SlotState.CLOSED), Constraint.OVER),
        (None, a_slot(SlotState.CLOSED, late=9.0, slot={"fence": Fence.DUE}), Constraint.FENCE),
    ],
)
def test_a_pod_is_explained_by_its_slot_and_its_own_status(
    pod: Any, slot: Any, named: Constraint
) -> None:
    context = a_context(pods=() if pod is None else (pod,))
    assert binding(explain_runner("mac-1", slot, context)).constraint is named


@pytest.mark.parametrize(
    ("name", "slot", "labels"),
    [
        ("stale_claims", a_slot(SlotState.OFFERED, late=5.0), {}),
        ("orphaned_runners", a_slot(SlotState.ARMED, late=5.0), {}),
        ("pods_against_slots", a_slot(last_beat=NOW - 200), {}),
        ("orphaned_stamped_pods", a_slot(), {names.POOL_OWNER: "acme"}),
    ],
)
def test_an_inactive_reconciler_is_the_binding_constraint(
    name: str, slot: Any, labels: dict[str, str]
) -> None:
    pods = [a_pod(labels=labels)]
    for other in Reconciler:
        limits = DispatchLimits(inactive_reconcilers=((other.value, "off"),))
        found = binding(explain_runner("mac-1", slot, a_context(pods=pods, limits=limits)))
        off = found.constraint is Constraint.SWITCHED_OFF
        assert off == (other.value == name)
        assert not off or found.what.fields["reconciler"] == name


def test_a_working_runner_on_a_host_that_is_not_there_says_both() -> None:
    lost = Host(name="mini-1", tone="bad", state="silent", heartbeat_at=NOW - 90)
    chain = explain_runner(
        "mac-1", a_slot(SlotState.EXECUTING), a_context(pods=[a_pod()], hosts=(lost,))
    )
    assert [step.constraint for step in chain] == [Constraint.RUNNING, Constraint.HOST_AWAY]
    assert binding(chain).constraint is Constraint.HOST_AWAY


def test_an_unknown_name_has_no_chain() -> None:
    assert explain_runner("nobody", None, a_context()) == ()


def test_a_pool_that_rolls_beside_busy_stale_runners_is_still_rolling() -> None:
    pool = a_pool(
        conditions=[condition("Rolled", names.REASON_ROLL_CAPPED, "rolls", unavailable=0)]
    )
    idle = a_context(
        pools=[pool], runners=(a_runner(state="idle"), a_runner("mac-2", state="busy"))
    )
    assert binding(explain_pool(pool, idle)).constraint is Constraint.ROLL


@pytest.mark.parametrize("code", [*What, *Ends], ids=lambda code: f"{type(code).__name__} {code}")
def test_every_code_is_served_with_its_text_and_its_detail(code: What | Ends) -> None:
    samples = {str: "x", int: 3, float: 2.5}
    reason = code.because(**{name: samples[types[0]] for name, types in code.types.items()})
    step = Step(
        constraint=Constraint.NEXT, subject="job 7", what=reason, ends=reason, cause=reason, who="x"
    )
    shown = step_view(step)
    assert (shown.what_code, shown.what_detail) == (code.value, reason.fields)
    assert (shown.cause_code, shown.cause_detail) == (code.value, reason.fields)
    assert (shown.ends_code, shown.ends_detail) == (code.value, reason.fields)
    assert shown.ends == render(reason) and shown.what == f"{shown.ends}: {shown.ends}"
