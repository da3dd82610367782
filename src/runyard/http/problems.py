"""How a refusal looks on the wire: what went wrong, why, and what to do about it.

One shape for every core and every status, so that a person with curl and a client with a decoder read
the same three fields. `error` is a short sentence, `reason` what exactly was found, `fix` what would
help; the last two are left out when there is nothing to say.

Invariant: a problem never repeats a secret. Whoever writes a `reason` quotes names and sizes, not values.
"""

import msgspec

from runyard.http.messages import Pairs, Response, json_response

JSON = "application/json"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a refusal."""

    error: str
    reason: str = ""
    fix: str = ""


def problem(
    status: int, error: str, *, reason: str = "", fix: str = "", headers: Pairs = ()
) -> Response:
    """A refusal as an answer."""
    return json_response(status, Problem(error=error, reason=reason, fix=fix), headers)
