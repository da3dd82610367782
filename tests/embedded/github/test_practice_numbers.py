"""No number is given twice, whatever happened to the store: the server ignores jobs that it has finished."""

import asyncio
import random
import shutil
import socket
from pathlib import Path

import pytest
from tests.embedded.github.conftest import ManualClock

from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.github.numbers import epoch_at
from runyard.embedded.github.serving import Practice, serve
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.store import RecordStore
from runyard.embedded.up.practice_client import PracticeClient
from runyard.http.client import HttpTransport
from runyard.telemetry.log import get_logger

NOW = 1.8e9


@pytest.fixture(scope="module")
def keys() -> KeyPair:
    return generate_key_pair()


def numbers(path: Path, keys: KeyPair, *, now: float, jobs: int = 3) -> list[tuple[int, int]]:
    """The numbers of new jobs and of their runs, in a start at this time."""
    store = RecordStore(path)
    try:
        core = GithubCore(
            clock=ManualClock(),
            rng=random.Random(1),
            app=PracticeApp(app_id=1, public_key=keys.public_pem, webhook_secret="s"),
            settings=PracticeSettings(epoch=epoch_at(now)),
            store=store,
        )
        if not core.jobs():
            core.install("acme")
            core.add_repo("acme/app")
        queued = [core.queue_job("acme/app", ("linux",)) for _ in range(jobs)]
        core._persistence.commit()  # type: ignore[union-attr]  # there is a store
        return [(core.jobs()[number].id, core.jobs()[number].run_id) for number in queued]
    finally:
        store.close()


def test_a_lost_store_repeats_no_number(tmp_path: Path, keys: KeyPair) -> None:
    before = numbers(tmp_path / "one.db", keys, now=NOW)
    after = numbers(tmp_path / "two.db", keys, now=NOW + 1)
    assert min(after) > max(before)
    assert min(run for _, run in after) > max(run for _, run in before)


def test_a_store_that_lacks_its_last_writes_repeats_no_number(
    tmp_path: Path, keys: KeyPair
) -> None:
    numbers(tmp_path / "live.db", keys, now=NOW)
    shutil.copy(tmp_path / "live.db", tmp_path / "old.db")
    before = numbers(tmp_path / "live.db", keys, now=NOW + 10)
    after = numbers(tmp_path / "old.db", keys, now=NOW + 20)
    assert min(after) > max(before)


async def served_number(path: Path, keys: KeyPair) -> int:
    """The number of the first job of a practice GitHub as `runyard up` serves it."""
    sock = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    transport, begun = HttpTransport(url), asyncio.Event()
    practice = Practice(
        store_path=path,
        app_id=1,
        public_key=keys.public_pem,
        webhook_secret="s",
        practice_token="practice-secret",
        settings=PracticeSettings(public_url=url),
        server=transport,  # it has no route for webhooks, and no delivery is looked at
        clock=RealClock(),
        rng=random.Random(1),
        log=get_logger("test"),
    )
    serving = asyncio.create_task(serve(practice, sock, ready=begun.set))
    try:
        await begun.wait()
        client = PracticeClient(transport, token="practice-secret")
        await client.install("acme", "acme/app")
        return await client.queue_job("acme/app", labels=("linux",), script="true", name="one")
    finally:
        await transport.close()
        serving.cancel()
        await asyncio.wait((serving,))


def test_the_numbers_of_a_served_github_begin_with_the_time(tmp_path: Path, keys: KeyPair) -> None:
    began = RealClock().now()
    number = asyncio.run(served_number(tmp_path / "one.db", keys))
    assert number > epoch_at(began) > 0


def test_a_clock_that_was_set_back_repeats_no_number(tmp_path: Path, keys: KeyPair) -> None:
    before = numbers(tmp_path / "live.db", keys, now=NOW)
    after = numbers(tmp_path / "live.db", keys, now=NOW - 86400)
    assert min(after) > max(before)


def test_numbers_fit_what_reads_them() -> None:
    in_2100 = 4.1e9
    assert 40_000_000_001 + epoch_at(in_2100) < 2**53
    assert epoch_at(0.0) == 0
