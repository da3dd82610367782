"""No, as an exception: whoever finds a reason raises it, and the table answers it."""

from runyard.http.messages import Response
from runyard.http.problems import problem


class Refused(Exception):
    """The request is answered with this."""

    def __init__(self, status: int, error: str, *, reason: str = "", fix: str = "") -> None:
        super().__init__(error)
        self.answer: Response = problem(status, error, reason=reason, fix=fix)


def bad(name: str, possible: str) -> Refused:
    """A parameter that makes no sense."""
    return Refused(400, "a parameter makes no sense", reason=f"{name}: {possible}")


def nothing(what: str) -> Refused:
    """There is none, or none that the caller may know of."""
    fix = "look at its id; what is old is removed, and a token shows its own account's alone"
    return Refused(404, f"there is no such {what}", fix=fix)
