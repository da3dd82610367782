"""The reconcilers by name, and how each is switched: it heals, it only says what it would do, or it rests.

A rule that deletes things must be possible to stop, at once and alone, without stopping the server. And a rule that
was stopped must not be forgotten: `off` is a health condition for as long as it lasts. In a dry run everything is
read and judged as usual, nothing is asked of GitHub, and nothing is moved but the time of the next look; the log says
what would have been done.

The deadlines of the slot machine are not reconcilers and cannot be switched off, except for two edges: that of an
offer (`stale_claims`) and those of a runner that is armed or at work (`orphaned_runners`).
"""

from enum import StrEnum

import msgspec


class Reconciler(StrEnum):
    """Who heals what."""

    ORPHANED_STAMPED_PODS = "orphaned_stamped_pods"  # a stamp, and no claim that speaks for it
    STALE_CLAIMS = "stale_claims"  # an offer whose mint never came to an end
    ORPHANED_RUNNERS = "orphaned_runners"  # a runner that never came up, or whose job is over
    PODS_AGAINST_SLOTS = "pods_against_slots"  # slots without Pods, and Pods that do not ask
    STALE_QUEUED_JOBS = "stale_queued_jobs"  # jobs that wait longer than GitHub keeps them
    GHOST_REGISTRATIONS = "ghost_registrations"  # runners at GitHub that nobody speaks for


class Mode(StrEnum):
    """What a reconciler does with what it finds."""

    ENABLED = "enabled"
    DRY_RUN = "dry_run"
    OFF = "off"


class Modes(msgspec.Struct, frozen=True, kw_only=True):
    """How each reconciler is switched; the fields are their names."""

    orphaned_stamped_pods: Mode = Mode.ENABLED
    stale_claims: Mode = Mode.ENABLED
    orphaned_runners: Mode = Mode.ENABLED
    pods_against_slots: Mode = Mode.ENABLED
    stale_queued_jobs: Mode = Mode.ENABLED
    ghost_registrations: Mode = Mode.ENABLED

    def of(self, reconciler: Reconciler) -> Mode:
        """How this one is switched."""
        mode: Mode = getattr(self, reconciler.value)
        return mode

    @property
    def off(self) -> tuple[Reconciler, ...]:
        """Those that rest."""
        return tuple(each for each in Reconciler if self.of(each) is Mode.OFF)


def parse(texts: tuple[str, ...]) -> Modes:
    """Modes from `NAME=MODE` texts, all others enabled; `ValueError` says what is possible."""
    chosen: dict[str, Mode] = {}
    for text in texts:
        name, separator, mode = text.partition("=")
        if not separator or name not in list(Reconciler) or mode not in list(Mode):
            names, modes = ", ".join(Reconciler), ", ".join(Mode)
            raise ValueError(f"{text!r} is not NAME=MODE; names: {names}; modes: {modes}")
        if chosen.get(name, mode) != mode:
            raise ValueError(f"{name} is switched twice: {chosen[name]} and {mode}")
        chosen[name] = Mode(mode)
    return Modes(**chosen)
