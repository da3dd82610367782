"""Measures `desired_replicas`, the autoscaler's query, with very many jobs in the tables."""

import asyncio
import time

import psycopg
from benches.dispatch import claims

from runyard.clock import RealClock
from runyard.dispatch.signals import Signals
from runyard.telemetry.log import get_logger

_TIMES = 5


def counting(urls: dict[int, str]) -> dict[int, list[float]]:
    """Measure the limit: counting the queued jobs by their labels in one statement, in seconds."""
    found: dict[int, list[float]] = {}
    for rows, url in urls.items():
        found[rows] = []
        with psycopg.connect(url, autocommit=True) as link:
            for _ in range(_TIMES):
                began = time.perf_counter()
                link.execute(
                    "SELECT labels, count(*) FROM jobs WHERE state = 'queued' GROUP BY labels"
                ).fetchall()
                found[rows].append(time.perf_counter() - began)
    return found


def measure(urls: dict[int, str]) -> dict[int, list[float]]:
    """Measure uncached responses in seconds, by the number of jobs."""

    async def run() -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        for rows, url in urls.items():
            found[rows] = []
            for _ in range(_TIMES):
                async with claims.claiming(url) as one:  # without a cache
                    signals = Signals(
                        one.database,
                        pools=one.wired.shared.pools,
                        clock=RealClock(),
                        log=get_logger("b"),
                    )
                    began = time.perf_counter()
                    asked = await signals.of("mac")
                    found[rows].append(time.perf_counter() - began)
                    assert asked.queued > 0
        return found

    return asyncio.run(run())
