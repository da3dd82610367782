"""Decides how an offer continues, from the results of its mint at GitHub and its stamp in Kubernetes.

mint      stamp                conclusion (an invalid stamp counts as refused)
minted    acknowledged         arm
minted    refused or unclear   abandon: a runner exists that must never be delivered; fence it
refused   refused              fail: back to idle, nothing to clean up
refused   stamped or unclear   clear the stamp first, then fail
unclear   anything             abandon: a runner may exist; fence it

A Pod whose offer is abandoned got no JIT: after the fence its stamp is cleared, and it waits for the next job.
"""

from enum import StrEnum

import msgspec

from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Why


class MintAnswer(StrEnum):
    """The result of the mint."""

    MINTED = "minted"
    REFUSED = "refused"  # certainly no runner was created
    UNCLEAR = "unclear"


class StampAnswer(StrEnum):
    """The result of the stamp."""

    STAMPED = "stamped"
    REFUSED = "refused"  # certainly not stamped: the Pod is gone, or another one has its name
    INVALID = "invalid"  # certainly not stamped, and no Pod can be: the account's name is no valid label value
    UNCLEAR = "unclear"


class Conclusion(StrEnum):
    """How the offer continues."""

    ARM = "arm"
    FAIL = "fail"
    CLEAR_AND_FAIL = "clear-stamp-and-fail"
    ABANDON = "abandon"


class Reasoned(msgspec.Struct, frozen=True, kw_only=True):
    """A conclusion with its reason."""

    conclusion: Conclusion
    reason: Reason


class MintError(msgspec.Struct, frozen=True, kw_only=True):
    """Why GitHub minted no runner: the kind of error as a slug, and GitHub's message."""

    kind: str = "none"
    message: str = ""


NO_ERROR = MintError()


def conclude(
    mint: MintAnswer, stamp: StampAnswer, *, error: MintError = NO_ERROR, tenant: str = ""
) -> Reasoned:
    """Apply the table above."""
    return Reasoned(
        conclusion=_follows(mint, stamp), reason=_reason(mint, stamp, error=error, tenant=tenant)
    )


def _failure(stamp: StampAnswer, *, error: MintError, tenant: str) -> Reason:
    if stamp is StampAnswer.INVALID:
        return Why.STAMP_INVALID.because(tenant=tenant)
    return Why.MINT_REFUSED.because(kind=error.kind, message=error.message)


def _follows(mint: MintAnswer, stamp: StampAnswer) -> Conclusion:
    if mint is MintAnswer.MINTED and stamp is StampAnswer.STAMPED:
        return Conclusion.ARM
    if mint is MintAnswer.REFUSED:
        never = stamp in (StampAnswer.REFUSED, StampAnswer.INVALID)
        return Conclusion.FAIL if never else Conclusion.CLEAR_AND_FAIL
    return Conclusion.ABANDON


def _reason(mint: MintAnswer, stamp: StampAnswer, *, error: MintError, tenant: str) -> Reason:
    if mint is MintAnswer.MINTED and stamp is StampAnswer.STAMPED:
        return Why.ARMED.because()
    if mint is MintAnswer.REFUSED or stamp is StampAnswer.INVALID:
        return _failure(stamp, error=error, tenant=tenant)
    if mint is MintAnswer.MINTED:
        return Why.STAMP_FAILED.because(stamp=stamp.value)
    return Why.MINT_UNCLEAR.because(stamp=stamp.value, kind=error.kind, message=error.message)
