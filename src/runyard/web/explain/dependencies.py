"""Explains constraints of dependencies: GitHub, its rate budget, Postgres, Kubernetes."""

from runyard.telemetry.conditions import GITHUB_REFUSED, GITHUB_UNREACHABLE
from runyard.web.durations import format_duration
from runyard.web.explain.context import Context
from runyard.web.explain.reasons import Ends, What
from runyard.web.explain.values import Constraint, Step
from runyard.web.values import Alarm, Source
from runyard.wire.reasons import Reason


def github(context: Context, *, key: str) -> tuple[Step, ...]:
    """Explain why requests of this installation cannot be sent to GitHub; empty if they can."""
    if unreachable := github_unreachable(context):
        return unreachable
    refused = context.alarm(GITHUB_REFUSED.code)
    if refused is not None:
        return (
            _from_alarm(
                refused,
                Constraint.GITHUB_REFUSED,
                ends=Ends.CONDITION_FIXED.because(fix=refused.text),
            ),
        )
    return _budget(context, key) or _budget(context, context.limits.shared_budget_key)


def github_unreachable(context: Context) -> tuple[Step, ...]:
    """Explain that GitHub is unreachable, for this server and for runners; empty if it is reachable."""
    unreachable = context.alarm(GITHUB_UNREACHABLE.code)
    if unreachable is None:
        return ()
    return (_from_alarm(unreachable, Constraint.GITHUB_AWAY, ends=Ends.GITHUB_ANSWERS.because()),)


def _from_alarm(alarm: Alarm, constraint: Constraint, *, ends: Reason) -> Step:
    return Step(
        constraint=constraint,
        subject="GitHub",
        what=What.CONDITION.because(title=alarm.title),
        cause=What.MESSAGE.because(text=alarm.message) if alarm.message else None,
        reason=alarm.code,
        who="this server's own calls",
        since=alarm.since,
        ends=ends,
    )


def _budget(context: Context, key: str) -> tuple[Step, ...]:
    rate_budget = next(
        (rate_budget for rate_budget in context.rate_budgets if rate_budget.key == key), None
    )
    if rate_budget is None:
        return ()
    short = max(0.0, context.limits.mint_points - rate_budget.points)
    hour = rate_budget.hour_ends_in if rate_budget.hour_left == 0 else 0.0
    wait = max(rate_budget.closed, hour, short * 60.0 / rate_budget.capacity)
    if wait <= 0:
        return ()
    numbers = {"wait": round(wait, 1), "points": round(rate_budget.points, 1)}
    if rate_budget.hour_left is not None and rate_budget.hour_limit is not None:
        numbers |= {
            "hour_left": float(rate_budget.hour_left),
            "hour_limit": float(rate_budget.hour_limit),
        }
    return (
        Step(
            constraint=Constraint.GITHUB_BUDGET,
            subject="GitHub",
            what=What.BUDGET_USED_UP.because(wait=format_duration(wait)),
            who="dispatch: the shared budget",
            numbers=numbers,
            ends=Ends.LIMIT_RESETS.because(wait=format_duration(wait)),
        ),
    )


def inactive_reconciler(context: Context, reconciler: str) -> tuple[Step, ...]:
    """Explain that the responsible reconciler is off or in a dry run; empty if it is enabled."""
    return tuple(
        Step(
            constraint=Constraint.SWITCHED_OFF,
            subject="dispatch",
            what=What.RECONCILER_OFF.because(reconciler=name, mode=mode),
            who="the server's settings",
            ends=Ends.RECONCILER_ENABLED.because(reconciler=name),
        )
        for name, mode in context.limits.inactive_reconcilers
        if name == reconciler
    )


def database(source: Source) -> Step:
    """Explain that Postgres does not answer."""
    return Step(
        constraint=Constraint.DATABASE_AWAY,
        subject="Postgres",
        what=What.DATABASE_AWAY.because(message=source.message),
        who="this server's own calls",
        since=source.since,
        ends=Ends.DATABASE_ANSWERS.because(),
    )


def kubernetes(source: Source) -> Step:
    """Explain that Kubernetes does not answer."""
    return Step(
        constraint=Constraint.KUBERNETES_AWAY,
        subject="Kubernetes",
        what=What.KUBERNETES_AWAY.because(message=source.message),
        who="this server's own calls",
        since=source.since,
        ends=Ends.KUBERNETES_ANSWERS.because(),
    )
