"""Decides the labels of a Pod by which a host knows whether it may give the Pod its account's cache.

A host gives the cache to a Pod that names its account and is not marked as untrusted. GitHub may give a runner another
job than the one it was registered for, so a Pod may be marked more than once. A mark is never taken back: the job that
it is about may still run, or its files may still be there.
"""

import msgspec

from runyard.dispatch.plans.trust import is_trusted
from runyard.wire.names import CACHE_UNTRUSTED, RUNNER_ACCOUNT
from runyard.wire.reasons_dispatch import Trust


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What the labels of a Pod say; `account_id` is 0 if they name none."""

    account_id: int = 0
    untrusted: bool = False


def mark_after(before: Mark, *, account_id: int, trust: Trust) -> Mark:
    """What the labels must say when a Pod that has `before` runs a job of this account with this trust."""
    return Mark(
        account_id=account_id or before.account_id,
        untrusted=before.untrusted or not is_trusted(trust),
    )


def labels_for(before: Mark, after: Mark) -> dict[str, str]:
    """The labels to write; none that the Pod has, and never the removal of one."""
    labels: dict[str, str] = {}
    if after.account_id != before.account_id:
        labels[RUNNER_ACCOUNT] = str(after.account_id)
    if after.untrusted and not before.untrusted:
        labels[CACHE_UNTRUSTED] = "true"
    return labels
