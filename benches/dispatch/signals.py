"""What an autoscaler's question costs when very many jobs lie around."""

import asyncio
import time

from benches.dispatch import claims

from runyard.clock import RealClock
from runyard.dispatch.signals import Signals
from runyard.telemetry.log import get_logger

_TIMES = 5


def measure(urls: dict[int, str]) -> dict[int, list[float]]:
    """Seconds of each answer that was not remembered, by how many jobs there are."""

    async def run() -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        for rows, url in urls.items():
            found[rows] = []
            for _ in range(_TIMES):
                async with claims.claiming(url) as one:  # a replica that remembers nothing
                    signals = Signals(
                        one.database, pools=one.wired.pools, clock=RealClock(), log=get_logger("b")
                    )
                    began = time.perf_counter()
                    asked = await signals.of("mac")
                    found[rows].append(time.perf_counter() - began)
                    assert asked.queued > 0
        return found

    return asyncio.run(run())
