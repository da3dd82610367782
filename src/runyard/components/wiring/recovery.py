"""Wires the sweeper and the reconcilers, which recover leaked slots, Pods and registrations."""

import msgspec

from runyard.components.wiring.shared import Shared
from runyard.dispatch.modes import Reconciler
from runyard.dispatch.recovery.fencing import Fencer
from runyard.dispatch.recovery.lookup import RunnerLookup
from runyard.dispatch.recovery.pods import PodsAgainstSlots
from runyard.dispatch.recovery.reading import Reader
from runyard.dispatch.recovery.registrations import GhostRegistrations
from runyard.dispatch.recovery.retiring import Retirer
from runyard.dispatch.recovery.snapshot import SnapshotReader
from runyard.dispatch.recovery.stamped import OrphanedStampedPods
from runyard.dispatch.recovery.sweeping import Sweeper
from runyard.dispatch.recovery.unstamping import Unstamper
from runyard.telemetry.conditions import UNKNOWN_STAMP_OWNER


class RecoveryPieces(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of recovery."""

    sweeper: Sweeper
    reader: Reader
    stamped: OrphanedStampedPods
    pods: PodsAgainstSlots
    ghosts: GhostRegistrations


def wire_recovery(shared: Shared) -> RecoveryPieces:
    """Put recovery together."""
    deps = shared.deps
    reader = Reader(
        database=deps.database,
        store=shared.store,
        github=shared.github,
        waiters=shared.waiters,
        meter=deps.meter,
        log=deps.log,
        settings=deps.settings,
    )
    fencer = Fencer(shared.github, deleter=shared.deleter, meter=deps.meter, log=deps.log)
    unstamper = Unstamper(
        deps.kube,
        store=shared.store,
        prover=shared.prover,
        rules=deps.guards.rules,
        namespace=deps.settings.namespace,
        log=deps.log,
    )
    sweeper = Sweeper(
        deps,
        store=shared.store,
        prover=shared.prover,
        fencer=fencer,
        unstamper=unstamper,
        reader=reader,
        deleter=shared.deleter,
    )
    ghosts = GhostRegistrations(
        deps,
        github=shared.github,
        pools=shared.pools,
        deleter=shared.deleter,
        report=shared.report(Reconciler.GHOST_REGISTRATIONS),
        leases=shared.leases,
    )
    return RecoveryPieces(
        sweeper=sweeper,
        reader=reader,
        stamped=_stamped(shared, fencer),
        pods=_pods(shared, fencer),
        ghosts=ghosts,
    )


def _snapshots(shared: Shared) -> SnapshotReader:
    deps = shared.deps
    return SnapshotReader(
        kube=deps.kube,
        database=deps.database,
        store=shared.store,
        clock=deps.clock,
        settings=deps.settings,
    )


def _retirer(shared: Shared, fencer: Fencer) -> Retirer:
    return Retirer(
        database=shared.deps.database, store=shared.store, prover=shared.prover, fencer=fencer
    )


def _stamped(shared: Shared, fencer: Fencer) -> OrphanedStampedPods:
    return OrphanedStampedPods(
        snapshots=_snapshots(shared),
        retirer=_retirer(shared, fencer),
        lookup=RunnerLookup(
            shared.deps,
            github=shared.github,
            store=shared.store,
            fencer=fencer,
            leases=shared.leases,
        ),
        report=shared.report(Reconciler.ORPHANED_STAMPED_PODS),
        condition=shared.reporter(UNKNOWN_STAMP_OWNER),
        settings=shared.deps.settings,
    )


def _pods(shared: Shared, fencer: Fencer) -> PodsAgainstSlots:
    return PodsAgainstSlots(
        snapshots=_snapshots(shared),
        closer=shared.closer,
        retirer=_retirer(shared, fencer),
        report=shared.report(Reconciler.PODS_AGAINST_SLOTS),
        leases=shared.leases,
        clock=shared.deps.clock,
        settings=shared.deps.settings,
    )
