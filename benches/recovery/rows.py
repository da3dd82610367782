"""The rows of the recovery table: what each crash leaves behind, what repairs it, and which deadline sets the bound.

Effects are found at run time, so a row is a rule on an effect's name; effects without a rule belong to the last row,
which is the strictest: nothing is left behind.
"""

import re

import msgspec
from benches.recovery.matrix import Case

_MINT = re.compile(r"github: POST .*generate-jitconfig$")
_OWNER = "kube: PATCH pods/* tuist.dev/runner-pool-owner"
_ACCOUNT = "kube: PATCH pods/* tuist.dev/runner-account"
_SERVED = re.compile(r"answer: 200 POST .*/dispatch$")
_HEARD = re.compile(r"commit: webhook$")
# The labels of a Pod are written while its poll is answered, in this order: neither waits for the other.
_RUN = "github: GET /repos/*/actions/runs/*"
_LABELLING = ("commit: mark", _RUN, _ACCOUNT)
_LABELLED = "commit: mark recorded"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table."""

    key: str
    what: str
    left: str
    repair: str
    bound: float  # seconds
    clock: str = ""  # the external clock that sets the bound, if one does


_SWEEP = (
    "deadline of the offer (8 s), fence, deletion of the Pod; the job is read and offered again"
)
ROWS = (
    Row(
        key="before-claim",
        what="before the claim is committed",
        left="nothing",
        repair="the next step of the matcher",
        bound=30.0,
    ),
    Row(
        key="claimed",
        what="claim committed, Pod not stamped",
        left="an offer",
        repair=_SWEEP,
        bound=30.0,
    ),
    Row(
        key="stamped",
        what="Pod stamped, runner not minted",
        left="an offer, a stamp",
        repair=_SWEEP,
        bound=30.0,
    ),
    Row(
        key="minted",
        what="GitHub minted the runner, its response or the commit is lost",
        left="an offer, a stamp, a registration",
        repair=f"{_SWEEP}; the fence finds the runner by its name",
        bound=30.0,
    ),
    Row(
        key="armed",
        what="armed, nothing else",
        left="an armed slot whose Pod has no JIT yet",
        repair="the Pod polls again and gets the same JIT",
        bound=30.0,
    ),
    Row(
        key="labelling",
        what="armed, the labels of its job not written to the Pod, or not recorded",
        left="an armed slot whose Pod may have no labels, and perhaps no JIT yet",
        repair="the Pod polls again and gets the same JIT; any replica writes the labels, twice if need be",
        bound=30.0,
    ),
    Row(
        key="unanswered",
        what="all committed, the response with the JIT is lost",
        left="an armed slot whose Pod has no JIT yet",
        repair="the Pod polls again and gets the same JIT",
        bound=30.0,
    ),
    Row(
        key="answered",
        what="the Pod has its JIT",
        left="nothing inconsistent",
        repair="–",
        bound=30.0,
    ),
    Row(
        key="unheard",
        what="a webhook arrived and is not committed",
        left="an event that GitHub will not send again",
        repair="the job's next event, its Pod's end, or the audit of GitHub's deliveries",
        bound=60.0,
        clock="the audit: every 20 s, deliveries older than 30 s",
    ),
    Row(
        key="in-repair",
        what="a second crash, at each effect of the first one's repair",
        left="what the first left, half repaired",
        repair="as before: every step of the repair can be taken twice",
        bound=30.0,
    ),
    Row(
        key="elsewhere",
        what="any other effect: polls, reads, ticks, lists, tokens",
        left="nothing",
        repair="–",
        bound=30.0,
    ),
)
BY_KEY = {row.key: row for row in ROWS}


def row_of(case: Case) -> Row:
    """Return the row of a case."""
    return BY_KEY["in-repair" if case.second else _key(case.point.name, case.point.when)]


def _key(name: str, when: str) -> str:
    after = when == "after"
    if name == "commit: claim":
        return "claimed" if after else "before-claim"
    if name == _OWNER:
        return "stamped" if after else "claimed"
    if _MINT.match(name):
        return "minted" if after else "stamped"
    if name == "commit: arm":
        return "armed" if after else "minted"
    if name in _LABELLING or (name == _LABELLED and not after):
        return "labelling"
    if name == _LABELLED:
        return "unanswered"
    if _SERVED.match(name):
        return "answered" if after else "unanswered"
    if _HEARD.match(name) and not after:
        return "unheard"
    return "elsewhere"
