"""Steps about those whom the fleet depends on: GitHub, its budget, Postgres, Kubernetes."""

from runyard.telemetry.conditions import GITHUB_REFUSED, GITHUB_UNREACHABLE
from runyard.web.explain.scene import Scene
from runyard.web.explain.values import Constraint, Step
from runyard.web.values import Alarm, Source
from runyard.web.words import lasted


def github(scene: Scene, *, key: str) -> tuple[Step, ...]:
    """Why GitHub cannot be asked for this installation, if it cannot."""
    if away := github_away(scene):
        return away
    refused = scene.alarm(GITHUB_REFUSED.code)
    if refused is not None:
        return (_alarmed(refused, Constraint.GITHUB_REFUSED, ends=refused.text),)
    return _budget(scene, key) or _budget(scene, scene.terms.shared_purse)


def github_away(scene: Scene) -> tuple[Step, ...]:
    """GitHub answers nobody: neither us nor a runner that connects."""
    away = scene.alarm(GITHUB_UNREACHABLE.code)
    if away is None:
        return ()
    return (_alarmed(away, Constraint.GITHUB_AWAY, ends="GitHub answers again"),)


def _alarmed(alarm: Alarm, constraint: Constraint, *, ends: str) -> Step:
    return Step(
        constraint=constraint,
        subject="GitHub",
        what=f"{alarm.title}: {alarm.message}" if alarm.message else alarm.title,
        who="this server's own calls",
        since=alarm.since,
        ends=ends,
    )


def _budget(scene: Scene, key: str) -> tuple[Step, ...]:
    purse = next((purse for purse in scene.purses if purse.key == key), None)
    if purse is None:
        return ()
    short = max(0.0, scene.terms.mint_points - purse.points)
    hour = purse.hour_ends_in if purse.hour_left == 0 else 0.0
    wait = max(purse.closed, hour, short * 60.0 / purse.capacity)
    if wait <= 0:
        return ()
    numbers = {"wait": round(wait, 1), "points": round(purse.points, 1)}
    if purse.hour_left is not None and purse.hour_limit is not None:
        numbers |= {"hour_left": float(purse.hour_left), "hour_limit": float(purse.hour_limit)}
    return (
        Step(
            constraint=Constraint.GITHUB_BUDGET,
            subject="GitHub",
            what=f"the request budget is used up for {lasted(wait)}",
            who="dispatch: the shared budget",
            numbers=numbers,
            ends=f"GitHub's limit opens again in {lasted(wait)}",
        ),
    )


def switched(scene: Scene, reconciler: str) -> tuple[Step, ...]:
    """Somebody has switched off, or to a dry run, what would heal this."""
    return tuple(
        Step(
            constraint=Constraint.SWITCHED_OFF,
            subject="dispatch",
            what=f"the reconciler {name} is switched to {mode}: it heals nothing",
            who="whoever started the server",
            ends=f"the server runs with --reconciler {name}=enabled",
        )
        for name, mode in scene.terms.resting
        if name == reconciler
    )


def database(source: Source) -> Step:
    """Postgres does not answer: nothing more is known."""
    return Step(
        constraint=Constraint.DATABASE_AWAY,
        subject="Postgres",
        what=f"Postgres does not answer: {source.message}",
        who="this server's own calls",
        since=source.since,
        ends="Postgres answers again; nothing is reaped meanwhile, and deadlines start anew",
    )


def kubernetes(source: Source) -> Step:
    """Kubernetes does not answer: pools and Pods are not known."""
    return Step(
        constraint=Constraint.KUBERNETES_AWAY,
        subject="Kubernetes",
        what=f"the Kubernetes API does not answer: {source.message}",
        who="this server's own calls",
        since=source.since,
        ends="the Kubernetes API answers again",
    )
