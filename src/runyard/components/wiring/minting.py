"""Wires the matcher, which claims jobs for runners, and the minter, which registers runners at GitHub."""

import msgspec

from runyard.components.wiring.shared import Shared
from runyard.dispatch.claiming import Claims
from runyard.dispatch.matcher import Matcher
from runyard.dispatch.minting.mint import Minter
from runyard.dispatch.minting.stamp import Stamper
from runyard.dispatch.minting.trust import JobTrust

_MATCH_EVERY_AT_LEAST = 1.0  # seconds, for a replica that other replicas notify


def wire_matcher(shared: Shared) -> Matcher:
    """Put matcher and minter together; a replica that other replicas notify polls the queue less often."""
    deps = shared.deps
    settings = deps.settings
    trust = JobTrust(
        deps.database,
        github=shared.github,
        clock=deps.clock,
        log=deps.log,
        within=settings.mint_within,
    )
    minter = Minter(
        deps,
        store=shared.store,
        github=shared.github,
        deleter=shared.deleter,
        stamper=Stamper(
            deps.kube, namespace=settings.namespace, clock=deps.clock, log=deps.log, trust=trust
        ),
        seal=shared.seal,
        waiters=shared.waiters,
    )
    if deps.notices is not None:
        every = max(_MATCH_EVERY_AT_LEAST, deps.settings.match_every)
        settings = msgspec.structs.replace(deps.settings, match_every=every)
        deps = msgspec.structs.replace(deps, settings=settings)
    return Matcher(
        deps,
        store=shared.store,
        claims=Claims(ctx=shared.ctx, actor=deps.name, budget=shared.budget),
        pools=shared.pools,
        waiters=shared.waiters,
        minter=minter,
    )
