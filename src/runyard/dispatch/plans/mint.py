"""What to do with the two answers of an offer: GitHub's to the mint, Kubernetes' to the stamp.

mint      stamp                what follows (an invalid stamp is a refused one)
minted    acknowledged         arm
minted    refused or unclear   abandon: a runner exists that must never be delivered; fence it
refused   never asked, refused fail: back to idle, nothing to tidy up
refused   may be there         clear the stamp first, then fail
unclear   anything             abandon: a runner may exist; fence it
"""

from enum import StrEnum

import msgspec


class MintAnswer(StrEnum):
    """What is known of the mint."""

    MINTED = "minted"
    REFUSED = "refused"  # certainly no runner was created
    UNCLEAR = "unclear"


class StampAnswer(StrEnum):
    """What is known of the stamp."""

    STAMPED = "stamped"
    REFUSED = "refused"  # certainly not stamped: the Pod is gone, going, or another one
    INVALID = "invalid"  # certainly not stamped, nor will any Pod be: it is the account's name
    UNCLEAR = "unclear"


class Conclusion(StrEnum):
    """What follows."""

    ARM = "arm"
    FAIL = "fail"
    CLEAR_AND_FAIL = "clear the stamp, then fail"
    ABANDON = "abandon"


class Reasoned(msgspec.Struct, frozen=True, kw_only=True):
    """A conclusion with its reason."""

    conclusion: Conclusion
    reason: str


def conclude(mint: MintAnswer, stamp: StampAnswer, *, detail: str = "") -> Reasoned:
    """Read the table above."""
    if mint is MintAnswer.MINTED and stamp is StampAnswer.STAMPED:
        return Reasoned(conclusion=Conclusion.ARM, reason="minted and stamped")
    if mint is MintAnswer.REFUSED:
        never = stamp in (StampAnswer.REFUSED, StampAnswer.INVALID)
        follows = Conclusion.FAIL if never else Conclusion.CLEAR_AND_FAIL
        return Reasoned(conclusion=follows, reason=f"mint refused: {detail}")
    reason = f"mint {mint}, stamp {stamp}: {detail}"
    return Reasoned(conclusion=Conclusion.ABANDON, reason=reason)
