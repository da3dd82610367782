"""Names the reconcilers and the mode of each: enabled, dry run, or off.

Each reconciler has a mode of its own. While one is off, a health condition says so. In a dry run it reads and decides
as usual, does not call GitHub, and writes only the time of the next check; the log says what would have been done.

The deadlines of the slot machine are not reconcilers and cannot be switched off, except for two edges: that of an
offer (`stale_claims`) and those of a runner that is armed or executing (`orphaned_runners`).
"""

from enum import StrEnum

import msgspec


class Reconciler(StrEnum):
    """One reconciler, by the name of its flag."""

    ORPHANED_STAMPED_PODS = "orphaned_stamped_pods"  # an owner's stamp, and no claim
    STALE_CLAIMS = "stale_claims"  # an offer whose mint never ended
    ORPHANED_RUNNERS = "orphaned_runners"  # a runner that never came up, or whose job is over
    PODS_AGAINST_SLOTS = "pods_against_slots"  # slots without Pods, and Pods that do not poll
    STALE_QUEUED_JOBS = "stale_queued_jobs"  # jobs that wait longer than GitHub keeps them
    GHOST_REGISTRATIONS = "ghost_registrations"  # runners at GitHub that no slot claims


class Mode(StrEnum):
    """What a reconciler does with what it finds."""

    ENABLED = "enabled"
    DRY_RUN = "dry_run"
    OFF = "off"


class Modes(msgspec.Struct, frozen=True, kw_only=True):
    """The mode of each reconciler; the fields are their names."""

    orphaned_stamped_pods: Mode = Mode.ENABLED
    stale_claims: Mode = Mode.ENABLED
    orphaned_runners: Mode = Mode.ENABLED
    pods_against_slots: Mode = Mode.ENABLED
    stale_queued_jobs: Mode = Mode.ENABLED
    ghost_registrations: Mode = Mode.ENABLED

    def of(self, reconciler: Reconciler) -> Mode:
        """Return the mode of a reconciler."""
        mode: Mode = getattr(self, reconciler.value)
        return mode

    @property
    def off(self) -> tuple[Reconciler, ...]:
        """The reconcilers that are off."""
        return tuple(each for each in Reconciler if self.of(each) is Mode.OFF)


def parse(texts: tuple[str, ...]) -> Modes:
    """Parse `NAME=MODE` texts; the others are enabled. `ValueError` lists the valid names and modes."""
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
