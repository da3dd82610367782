"""Watches the server's health conditions and reports the errors among them: when one begins, and when it ends.

The components keep running while GitHub, the database or the API cannot be used, so without these lines a machine
whose jobs wait would look like one without jobs.
"""

from collections.abc import Callable, Mapping
from typing import NoReturn

import msgspec

from runyard.clock import Clock
from runyard.http.client import HttpTransport
from runyard.http.errors import TRANSPORT_ERRORS
from runyard.http.messages import Request, Response
from runyard.http.probes import READYZ, Readiness
from runyard.telemetry.health import Report, Severity

CHECK_EVERY = 5.0
_TIMEOUT = 5.0


async def watch(url: str, *, token: str, clock: Clock, report: Callable[[str], None]) -> NoReturn:
    """Reports each change; `url` is the server's address on loopback, `token` that of the dashboard."""
    transport = HttpTransport(url)
    known: Mapping[str, Report] = {}
    try:
        while True:
            found = await _read(transport, token)
            if found is not None:  # else it is restarted, which the supervisor reports
                for line in changes(known, found):
                    report(line)
                known = found
            await clock.sleep(CHECK_EVERY)
    finally:
        await transport.close()


def changes(before: Mapping[str, Report], now: Mapping[str, Report]) -> list[str]:
    """The lines about conditions that have begun or ended."""
    ended = [f"no longer: {each.title}" for code, each in before.items() if code not in now]
    begun = [
        f"{each.title} ({each.message}). {each.fix}"
        for code, each in now.items()
        if code not in before
    ]
    return ended + begun


async def _read(transport: HttpTransport, token: str) -> dict[str, Report] | None:
    """The errors among the server's conditions, by code; None if it does not answer, or without reasons."""
    request = Request(method="GET", path=READYZ, headers=(("authorization", f"Bearer {token}"),))
    try:
        answer = await transport.send(request, timeout=_TIMEOUT)
    except TRANSPORT_ERRORS:
        return None
    if not isinstance(answer, Response):
        return None
    try:
        found = msgspec.json.decode(answer.body, type=Readiness).conditions
    except msgspec.MsgspecError:
        return None
    if found is msgspec.UNSET:
        return None
    return {each.code: each for each in found if each.severity is Severity.ERROR}
