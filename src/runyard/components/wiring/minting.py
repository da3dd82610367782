"""Wires the matcher, which claims jobs for runners, the minter, which registers them, and the labels of their Pods."""

import msgspec

from runyard.components.wiring.shared import Shared
from runyard.dispatch.claiming import Claims
from runyard.dispatch.matcher import Matcher
from runyard.dispatch.minting.marking import Marker
from runyard.dispatch.minting.mint import Minter, PodWriters
from runyard.dispatch.minting.stamp import Stamper
from runyard.dispatch.minting.trust import JobTrust

_MATCH_EVERY_AT_LEAST = 1.0  # seconds, for a replica that other replicas notify


def wire_marker(shared: Shared) -> Marker:
    """Put together what labels Pods with the account and the trust of their jobs."""
    deps = shared.deps
    trust = JobTrust(
        github=shared.github, clock=deps.clock, log=deps.log, within=deps.settings.mint_within
    )
    return Marker(deps, trust=trust)


def wire_matcher(shared: Shared, marker: Marker) -> Matcher:
    """Put matcher and minter together; a replica that other replicas notify polls the queue less often."""
    deps = shared.deps
    settings = deps.settings
    stamper = Stamper(deps.kube, namespace=settings.namespace, clock=deps.clock, log=deps.log)
    minter = Minter(
        deps,
        store=shared.store,
        github=shared.github,
        deleter=shared.deleter,
        pods=PodWriters(stamper=stamper, marker=marker),
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
        marker=marker,
    )
