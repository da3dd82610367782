"""Wires the intake of jobs (webhooks, fetched deliveries, the audit) and the API that runners call."""

import msgspec

from runyard.components.wiring.shared import Shared
from runyard.dispatch.intake.apply import Intake
from runyard.dispatch.intake.audit import Audit
from runyard.dispatch.intake.missing_deliveries import MissingDeliveries
from runyard.dispatch.intake.pull import Puller
from runyard.dispatch.intake.queued_jobs import QueuedJobs
from runyard.dispatch.polling import Polls
from runyard.dispatch.routes import Api
from runyard.dispatch.samples import SampleStore
from runyard.dispatch.signals import Signals


class IntakePieces(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of intake."""

    api: Api
    audit: Audit
    puller: Puller


def wire_intake(shared: Shared) -> IntakePieces:
    """Put intake together."""
    deps, github = shared.deps, shared.github
    settings, database = deps.settings, deps.database
    intake = Intake(
        store=shared.store,
        waiters=shared.waiters,
        meter=deps.meter,
        settings=settings,
        only=github.only,
    )
    missing_deliveries = MissingDeliveries(
        github=github,
        database=database,
        intake=intake,
        meter=deps.meter,
        log=deps.log,
        redeliver=settings.intake == "webhook",
    )
    queued = QueuedJobs(
        github=github,
        database=database,
        intake=intake,
        meter=deps.meter,
        log=deps.log,
        settings=settings,
    )
    audit = Audit(
        deps,
        github=github,
        missing_deliveries=missing_deliveries,
        queued=queued,
        leases=shared.leases,
    )
    puller = Puller(
        github=github,
        missing_deliveries=missing_deliveries,
        queued=queued,
        leases=shared.leases,
        clock=deps.clock,
        settings=settings,
    )
    return IntakePieces(api=_api(shared, intake), audit=audit, puller=puller)


def _api(shared: Shared, intake: Intake) -> Api:
    deps = shared.deps
    polls = Polls(
        deps,
        authenticator=shared.authenticator,
        store=shared.store,
        pools=shared.pools,
        waiters=shared.waiters,
        dropped=shared.dropped,
        seal=shared.seal,
    )
    return Api(
        deps,
        polls=polls,
        intake=intake,
        authenticator=shared.authenticator,
        closer=shared.closer,
        signals=Signals(
            deps.database,
            pools=shared.pools,
            clock=deps.clock,
            log=deps.log,
            guards=deps.guards,
        ),
        samples=SampleStore(deps.database, clock=deps.clock, meter=deps.meter),
    )
