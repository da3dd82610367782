"""Renews the credential of a joined host while its agent runs.

A credential is valid for 30 days and renewed when it is a day old, so the main machine may be away for four weeks. Its
age is that of its file: a clock that differs from the main machine's does not matter. The agent reads the file again
by itself, so nothing is restarted.
"""

from runyard.clock import Clock
from runyard.hosts.joining.client import JoinFailed, renew
from runyard.hosts.joining.membership import MembershipFiles, NotJoined
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.log import Logger
from runyard.telemetry.loops import run_loop
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import Loop

RENEW_AFTER = 86400.0
CHECK_EVERY = 60.0  # of real time: after a sleep a credential is renewed at once
_DEADLINE = 90.0


class Renewal:
    """Keeps the credential in these files young."""

    def __init__(
        self, files: MembershipFiles, *, clock: Clock, renew_after: float = RENEW_AFTER
    ) -> None:
        self._files = files
        self._clock = clock
        self._renew_after = renew_after

    async def run(self, *, meter: Meter, log: Logger, freshness: Freshness) -> None:
        """Renew until cancelled; a main machine that is away is asked again."""
        await run_loop(
            Loop.HOST_CREDENTIAL,
            self.step,
            clock=self._clock,
            meter=meter,
            log=log,
            every=CHECK_EVERY,
            deadline=_DEADLINE,
            expected=(JoinFailed, NotJoined, OSError),
            max_backoff=CHECK_EVERY,
            freshness=freshness,
        )

    async def step(self) -> bool:
        """Renew if it is due; whether it was."""
        files = self._files
        age = files.age(now=self._clock.now())
        if 0.0 <= age < self._renew_after:
            return False
        url, authority = files.read().url, files.authority()
        files.write_token(await renew(url, authority, files.credential()))
        return True
