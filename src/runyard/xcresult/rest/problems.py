"""Refusals of a request, as exceptions that the route table turns into HTTP problems."""

from runyard.http.messages import Response
from runyard.http.problems import problem
from runyard.wire.problem_codes import ProblemCode
from runyard.wire.reasons import Value


class Refused(Exception):
    """The request is answered with this problem."""

    def __init__(
        self, status: int, code: ProblemCode, *, reason: str = "", fix: str = "", **detail: Value
    ) -> None:
        super().__init__(code.value)
        self.answer: Response = problem(status, code, reason=reason, fix=fix, headers=(), **detail)


def bad(name: str, possible: str) -> Refused:
    """A parameter is not valid."""
    return Refused(400, ProblemCode.PARAMETER_INVALID, reason=f"{name}: {possible}")


def not_found(what: str) -> Refused:
    """The object does not exist, or the caller may not see it."""
    fix = "check the id; old results are deleted, and a token shows only its own account or project"
    return Refused(404, ProblemCode.RESULT_NOT_FOUND, fix=fix, what=what)
