"""`runyard server` as it is shipped, except for the settings that a measurement needs and no flag gives.

BENCH_SETTINGS='{"poll_wait_max": 600}' python -m benches.dispatch.served server …
"""

import os
from typing import Any

import msgspec

from runyard.parts import server


def main() -> None:
    settings: dict[str, Any] = msgspec.json.decode(os.environ.pop("BENCH_SETTINGS", "{}"))
    wire = server.wire

    def wrapped(deps: server.ServerDeps) -> server.Wired:
        deps.settings = msgspec.structs.replace(deps.settings, **settings)
        return wire(deps)

    if settings:
        server.wire = wrapped
    from runyard.cli.main import main as runyard  # noqa: PLC0415 after the wrapping

    runyard()


if __name__ == "__main__":
    main()
