"""Runs `runyard server` with settings that a measurement needs and that have no flag.

BENCH_SETTINGS='{"poll_wait_max": 600}' python -m benches.dispatch.configured_server server …
BENCH_PROFILE=/tmp/server.prof make bench-dispatch BENCH_ARGS="--only jobs"      profiles the server with cProfile
"""

import cProfile
import os
from typing import Any

import msgspec
from msgspec.structs import replace

from runyard.components import server
from runyard.components.results import ResultsSetup
from runyard.dispatch.deps import Deps


def main() -> None:
    settings: dict[str, Any] = msgspec.json.decode(os.environ.pop("BENCH_SETTINGS", "{}"))
    wire = server.wire

    def wrapped(deps: Deps, results: ResultsSetup | None = None) -> server.Wired:
        chosen = replace(deps.settings, **settings)
        return wire(replace(deps, settings=chosen), results)

    if settings:
        server.wire = wrapped
    from runyard.cli.main import main as runyard  # noqa: PLC0415 after the wrapping

    where = os.environ.pop("BENCH_PROFILE", "")
    if not where:
        runyard()
        return
    profile = cProfile.Profile()
    try:
        profile.runcall(runyard)
    finally:
        profile.dump_stats(where)


if __name__ == "__main__":
    main()
