"""`runyard server`, the real command, with every effect a numbered point. For the crash matrix only.

    python -m benches.recovery.victim server --database-url … (the flags of `runyard server`)

The command is not changed and does not know: before it is loaded, the place where its part is wired together and
the place where its answers are written are wrapped.
"""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from benches.recovery import points as p
from msgspec.structs import replace

from runyard.http import server as http_server
from runyard.parts import server


def main() -> None:
    points = p.Points(Path(os.environ.pop(p.JOURNAL)), Path(os.environ.pop(p.ORDER)))
    threading.Thread(target=_end_with_whoever_started_us, daemon=True).start()
    _wrap_wiring(points, msgspec.json.decode(os.environ.pop(p.DEADLINES)))
    _wrap_answers(points)
    from runyard.cli.main import main as runyard  # noqa: PLC0415 after the wrapping

    runyard()


def _end_with_whoever_started_us() -> None:
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _wrap_wiring(points: p.Points, deadlines: dict[str, float]) -> None:
    wire = server.wire

    def wrapped(deps: server.ServerDeps) -> server.Wired:
        deps.database = p.PointedDatabase(deps.database, points)
        deps.kube = p.PointedTransport(deps.kube, points, p.kube_name)
        deps.github = p.PointedTransport(deps.github, points, p.github_name)
        chosen = replace(deps.settings.deadlines, **deadlines)
        deps.settings = replace(deps.settings, deadlines=chosen)
        return wire(deps)

    server.wire = wrapped


def _wrap_answers(points: p.Points) -> None:
    finish = http_server._Connection.finish_response

    async def wrapped(
        self: Any, request: web.BaseRequest, answer: web.StreamResponse, start: float | None
    ) -> Any:
        name = p.answer_name(request.method, request.path, answer.status)
        if not name:
            return await finish(self, request, answer, start)
        return await points.around(name, lambda: finish(self, request, answer, start))

    http_server._Connection.finish_response = wrapped  # type: ignore[method-assign]  # to be wrapped is its fate


if __name__ == "__main__":
    main()
