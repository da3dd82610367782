"""Faults for the demo: they kill real processes at critical moments.

A fault is armed by a file and happens once: the file is removed before the kill, so the restarted process is not
killed again. Without the demo none of this is active.
"""

import os
import signal
from pathlib import Path

from runyard.embedded.up.boot import Boot
from runyard.embedded.up.layout import Layout
from runyard.http.messages import Request, Response, Stream, Transport
from runyard.wire.names import POOL_OWNER

_STAMP = f'"{POOL_OWNER}"'.encode()


def armed_after_stamp(layout: Layout) -> Path:
    """The file that arms the kill of the server right after a stamp was acknowledged."""
    return layout.root / "die-after-stamp"


def with_faults(transport: Transport, boot: Boot) -> Transport:
    """The transport as it is, or with the demo's fault."""
    return CrashAfterStamp(transport, armed_after_stamp(boot.layout)) if boot.faults else transport


class CrashAfterStamp:
    """Kills this process after Kubernetes acknowledged a stamp and before the commit in Postgres."""

    def __init__(self, inner: Transport, armed: Path) -> None:
        self._inner = inner
        self._armed = armed

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        """Sends; after an acknowledged stamp, if armed, kills the process."""
        answer = await self._inner.send(request, timeout=timeout)
        if request.method == "PATCH" and _STAMP in request.body and answer.status == 200:
            try:
                self._armed.unlink()
            except FileNotFoundError:
                return answer
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
