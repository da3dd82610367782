"""Runs the real `runyard server` with every effect numbered, for the crash matrix.

    python -m benches.recovery.killable_server server --database-url … (the flags of `runyard server`)

The command is not changed: before it is loaded, the function that wires the component and the one that writes responses
are wrapped.
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

from runyard.components import server
from runyard.components.results import ResultsSetup
from runyard.dispatch.deps import Deps
from runyard.http import server as http_server


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

    def wrapped(deps: Deps, results: ResultsSetup | None = None) -> server.Wired:
        chosen = replace(deps.settings.deadlines, **deadlines)
        pointed = replace(
            deps,
            database=p.PointedDatabase(deps.database, points),
            kube=deps.kube.through(lambda inner: p.PointedTransport(inner, points, p.kube_name)),
            github=p.PointedTransport(deps.github, points, p.github_name),
            settings=replace(deps.settings, deadlines=chosen),
        )
        return wire(pointed, results)

    server.wire = wrapped


def _wrap_answers(points: p.Points) -> None:
    finish = http_server._Connection.finish_response

    async def wrapped(
        self: Any, request: web.BaseRequest, answer: web.StreamResponse, start: float | None
    ) -> Any:
        name = p.answer_name(request.method, request.path, answer.status)
        if not name:
            return await finish(self, request, answer, start)
        return await points.run_effect(name, lambda: finish(self, request, answer, start))

    http_server._Connection.finish_response = wrapped  # type: ignore[method-assign]  # replaced by its wrapper


if __name__ == "__main__":
    main()
