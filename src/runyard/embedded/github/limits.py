"""Rate limits and scripted faults of the practice GitHub.

Both are off by default. The primary limit counts requests per hour and caller; the secondary one counts points per
minute (a read 1, a write 5). A scripted failure answers before anything else is done, so it has no effect; the one
exception is a mint that is scripted to fail *after* the runner was created, as GitHub's sometimes do.
"""

import msgspec

from runyard.clock import Clock
from runyard.embedded.github.settings import PracticeSettings
from runyard.http.messages import Pairs, Response, json_response


class _Window(msgspec.Struct):
    started: float
    used: int = 0


class Limits:
    """Counts the requests of each caller."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._hours: dict[str, _Window] = {}
        self._minutes: dict[str, _Window] = {}

    def charge(
        self, caller: str, method: str, *, settings: PracticeSettings
    ) -> tuple[Pairs, Response | None]:
        """Counts one request; returns the headers for the answer, and a refusal if it is over the limit."""
        headers: Pairs = ()
        if settings.primary_per_hour is not None:
            headers, over = self._primary(caller, settings.primary_per_hour)
            if over:
                text = f"API rate limit exceeded for {caller}."
                return headers, json_response(settings.limit_status, {"message": text}, headers)
        if settings.secondary_points_per_minute is not None:
            points = 1 if method in ("GET", "HEAD") else 5
            window = self._window(self._minutes, caller, 60.0)
            if window.used + points > settings.secondary_points_per_minute:
                wait = ("retry-after", str(settings.secondary_retry_after))
                text = "You have exceeded a secondary rate limit."
                answer = {"message": text}
                return headers, json_response(settings.limit_status, answer, (*headers, wait))
            window.used += points
        return headers, None

    def left(self, caller: str, *, settings: PracticeSettings) -> dict[str, int]:
        """What is left of a caller's hour; this call is not counted."""
        limit = settings.primary_per_hour
        window = self._window(self._hours, caller, 3600.0)
        used = window.used if limit is not None else 0
        left = 3600.0 - (self._clock.monotonic() - window.started)
        # Without a limit GitHub's usual one is shown.
        whole = 5000 if limit is None else limit
        reset = int(self._clock.now() + left) + 1
        return {"limit": whole, "used": used, "remaining": max(0, whole - used), "reset": reset}

    def _primary(self, caller: str, limit: int) -> tuple[Pairs, bool]:
        window = self._window(self._hours, caller, 3600.0)
        over = window.used >= limit
        if not over:
            window.used += 1
        left = 3600.0 - (self._clock.monotonic() - window.started)
        headers = (
            ("x-ratelimit-limit", str(limit)),
            ("x-ratelimit-remaining", str(limit - window.used)),
            ("x-ratelimit-used", str(window.used)),
            ("x-ratelimit-reset", str(int(self._clock.now() + left) + 1)),
            ("x-ratelimit-resource", "core"),
        )
        return headers, over

    def _window(self, windows: dict[str, _Window], caller: str, length: float) -> _Window:
        now = self._clock.monotonic()
        window = windows.get(caller)
        if window is None or now - window.started >= length:
            window = windows[caller] = _Window(started=now)
        return window


class _Failure(msgspec.Struct):
    prefix: str
    method: str
    status: int
    left: int
    headers: Pairs


class Faults:
    """The failures that a test or a simulation has scripted."""

    def __init__(self) -> None:
        self.outage = False
        self._failures: list[_Failure] = []
        self._mints: list[_Failure] = []

    def fail_next(
        self,
        path_prefix: str,
        status: int,
        times: int = 1,
        *,
        method: str = "",
        headers: Pairs = (),
    ) -> None:
        """Answers the next `times` requests under a path with a status, without any effect."""
        self._failures.append(_Failure(path_prefix, method, status, times, headers))

    def repair(self) -> None:
        """Removes all scripted failures."""
        self.outage = False
        self._failures.clear()
        self._mints.clear()

    def fail_after_mint(self, status: int = 503, times: int = 1) -> None:
        """Creates the next `times` runners, and answers as if that had failed."""
        self._mints.append(_Failure("", "POST", status, times, ()))

    def before(self, method: str, path: str) -> Response | None:
        """The scripted answer to a request, if there is one."""
        if self.outage:
            return json_response(503, {"message": "Service unavailable (scripted outage)"})
        for failure in self._failures:
            fits = path.startswith(failure.prefix) and failure.method in ("", method)
            if fits and failure.left > 0:
                return self._use(self._failures, failure)
        return None

    def after_mint(self) -> Response | None:
        """The scripted answer to a mint that has succeeded."""
        return self._use(self._mints, self._mints[0]) if self._mints else None

    def _use(self, failures: list[_Failure], failure: _Failure) -> Response:
        failure.left -= 1
        if failure.left <= 0:
            failures.remove(failure)
        message = {"message": f"scripted failure {failure.status}"}
        return json_response(failure.status, message, failure.headers)
