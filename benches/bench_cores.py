"""Compares the cores with encoding and decoding alone, and the simulator's event loop with asyncio's."""

import asyncio
import itertools
import random
import time
from pathlib import Path

import msgspec
from benches.conftest import Ratios, best_rate

from runyard.clock import RealClock
from runyard.embedded.kube.core import KubeCore
from runyard.embedded.kube.storage.journal import Journal, Row
from runyard.http.messages import Request
from runyard.sim.loop import run_virtual

_CALLS = 5_000
_SYNCED = 500
_POD = {
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "runner", "image": "x"}]},
}


async def _core(journal: Journal | None = None) -> KubeCore:
    core = KubeCore(clock=RealClock(), rng=random.Random(1), journal=journal)
    accounts = "/api/v1/namespaces/tuist-runners/serviceaccounts"
    body = msgspec.json.encode({"metadata": {"name": "default"}})
    await core.handle(Request(method="POST", path=accounts, body=body))
    path = "/api/v1/namespaces/tuist-runners/pods"
    made = await core.handle(Request(method="POST", path=path, body=msgspec.json.encode(_POD)))
    assert made.status == 201, made
    return core


def bench_patches_cost_a_small_multiple_of_their_json(ratios: Ratios) -> None:
    """Compare a merge patch through the embedded API with decoding and encoding the same object."""
    path = "/api/v1/namespaces/tuist-runners/pods/p"

    async def patches() -> int:
        core = await _core()
        for number in range(_CALLS):
            body = msgspec.json.encode({"metadata": {"labels": {"n": str(number)}}})
            answer = await core.handle(
                Request(
                    method="PATCH",
                    path=path,
                    headers=(("content-type", "application/merge-patch+json"),),
                    body=body,
                )
            )
            assert answer.status == 200
        return _CALLS

    async def stored() -> bytes:
        core = await _core()
        return (await core.handle(Request(method="GET", path=path))).body

    text = asyncio.run(stored())

    def json_only() -> int:
        for _ in range(_CALLS):
            msgspec.json.encode(msgspec.json.decode(text))
        return _CALLS

    ours = best_rate(lambda: asyncio.run(patches()))
    ratios.hold("embedded API: merge patches", ours, best_rate(json_only), floor=0.02)


def bench_a_journalled_write_costs_little_more_than_its_transaction(
    ratios: Ratios, tmp_path: Path
) -> None:
    """Compare a merge patch that is on disk before the response with SQLite syncing the same row."""
    path = "/api/v1/namespaces/tuist-runners/pods/p"
    numbers = itertools.count()

    async def patches(journal: Journal | None, calls: int) -> float:
        core = await _core(journal)

        async def run() -> int:
            for _ in range(calls):
                body = msgspec.json.encode({"metadata": {"labels": {"n": str(next(numbers))}}})
                headers = (("content-type", "application/merge-patch+json"),)
                answer = await core.handle(
                    Request(method="PATCH", path=path, headers=headers, body=body)
                )
                assert answer.status == 200
            return calls

        began = time.perf_counter()
        return await run() / (time.perf_counter() - began)

    def kept() -> float:
        journal = Journal(tmp_path / f"{next(numbers)}.db")
        try:
            return asyncio.run(patches(journal, _SYNCED))
        finally:
            journal.close()

    def bare() -> float:
        journal = Journal(tmp_path / f"{next(numbers)}.db")
        body = msgspec.json.encode(_POD) * 4
        began = time.perf_counter()
        for number in range(_SYNCED):
            journal.commit(number, [Row("pods", "tuist-runners", "p", number, body)])
        rate = _SYNCED / (time.perf_counter() - began)
        journal.close()
        return rate

    memory = max(asyncio.run(patches(None, _CALLS)) for _ in range(3))
    ours, limit = max(kept() for _ in range(3)), max(bare() for _ in range(3))
    print(f"\n{'embedded API: the same patches without a journal':<58} {memory:>12,.0f}/s", end="")
    ratios.hold("embedded API: journalled patches", ours, limit, floor=0.3)


def bench_virtual_sleeps_cost_a_small_multiple_of_real_ones(ratios: Ratios) -> None:
    """Compare the simulator's loop, which shuffles and counts, with asyncio's own loop with zero waits."""

    async def sleeps() -> int:
        for _ in range(20_000):
            await asyncio.sleep(0)
        return 20_000

    ours = best_rate(lambda: run_virtual(sleeps(), seed=1))
    ratios.hold(
        "simulator: steps of the loop", ours, best_rate(lambda: asyncio.run(sleeps())), floor=0.1
    )
