"""The body of a refused request: error, reason, fix, and a code.

All servers use this shape for every status. `error` is a short sentence, `reason` what exactly was found, `fix` what
would help; the last two are omitted when they are empty. `code` is a slug of the catalogue `PROBLEMS` and
`detail` its fields: programs read those, never the sentences.

Invariants:
- Every problem has a code: the functions here accept nothing else.
- A problem never repeats a secret. A `reason` quotes names and sizes, not values.
"""

from typing import Annotated

import msgspec

from runyard.http.messages import Pairs, Response, json_response
from runyard.wire.problem_codes import PROBLEMS, ProblemCode
from runyard.wire.reasons import Reason, Value, render

JSON = "application/json"
Slug = Annotated[
    str,
    msgspec.Meta(
        description="Why the request was refused; for programs. New codes may be added.",
        extra_json_schema={"examples": sorted(PROBLEMS.slugs)},
    ),
]


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a refusal."""

    error: str
    reason: str = ""
    fix: str = ""
    code: Slug = ""
    detail: dict[str, Value] = {}


def problem(
    status: int,
    code: ProblemCode,
    *,
    reason: str = "",
    fix: str = "",
    headers: Pairs = (),
    **detail: Value,
) -> Response:
    """A refusal as an answer; its error is the text of the code."""
    return problem_of(status, code.because(**detail), reason=reason, fix=fix, headers=headers)


def problem_of(
    status: int, error: Reason, *, reason: str = "", fix: str = "", headers: Pairs = ()
) -> Response:
    """A refusal as an answer, for a code with its detail."""
    body = Problem(
        error=render(error), reason=reason, fix=fix, code=error.slug, detail=error.fields
    )
    return json_response(status, body, headers)


def refusal(status: int, error: str, reason: Reason, *, fix: str = "") -> Response:
    """A refusal with a reason code: its slug, its detail, and its text."""
    body = Problem(
        error=error, reason=render(reason), fix=fix, code=reason.slug, detail=reason.fields
    )
    return json_response(status, body)
