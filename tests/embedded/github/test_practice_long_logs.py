"""A job's log is bounded, reports that it was cut, and harms neither the job nor GitHub."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.github.practicelive import Live, run_scenario

from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.store import RecordStore
from runyard.embedded.up.practice_client import PracticeClient
from runyard.http.client import HttpTransport

TRUNCATED = "\n[log truncated: it is full, and the rest was dropped]\n"
MIB = 1 << 20


async def read(it: Live, job: int) -> str:
    """Reads the log over HTTP."""
    transport = HttpTransport(it.core.settings.public_url)
    try:
        return await PracticeClient(transport, token="practice-secret").log(job)
    finally:
        await transport.close()


async def run(it: Live, script: str) -> int:
    job = int(it.core.queue_job("acme/app", ("mac",), script=script))
    program = await it.start("--jitconfig", it.mint())
    assert await program.ended() == 0, program.output
    assert it.core.jobs()[job].conclusion == "success"
    assert it.core.internal_errors == 0 and max(it.answered) < 500
    return job


FLOODS = {
    "fifty-megabytes": "echo begin; yes 0123456789 | head -c 50000000; echo end",
    "one-endless-line": "echo begin; head -c 5000000 /dev/zero | tr '\\0' x; echo end",
    "nothing-but-nul": "echo begin; head -c 5000000 /dev/zero; echo end",
    "nothing-but-noise": "echo begin; head -c 5000000 /dev/urandom; echo end",
}


@pytest.mark.parametrize("script", FLOODS.values(), ids=FLOODS)
def test_a_flood_is_cut_and_does_not_block_the_job(
    practice_keys: Any, tmp_path: Path, script: str
) -> None:
    async def scenario(it: Live) -> None:
        job = await run(it, script)
        log = await read(it, job)
        assert log.startswith("begin\n") and log.endswith(TRUNCATED) and "end" not in log[-80:-60]
        (shown,) = it.core.jobs().values()
        assert (
            it.core._practice_routes._logs.size(shown.id) == it.core.settings.log_limit == 200_000
        )

    run_scenario(practice_keys, tmp_path, scenario, log_limit=200_000)


def test_a_flood_is_cut_at_the_usual_limit_too(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        job = await run(it, FLOODS["fifty-megabytes"])
        log = await read(it, job)
        assert len(log) == it.core.settings.log_limit == 4 * MIB
        assert log.endswith(TRUNCATED)

    run_scenario(practice_keys, tmp_path, scenario)


def test_a_log_that_just_fits_is_whole(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        limit = it.core.settings.log_limit - len(TRUNCATED)
        log = await read(it, await run(it, f"head -c {limit} /dev/zero | tr '\\0' x"))
        assert log == "x" * limit

    run_scenario(practice_keys, tmp_path, scenario, log_limit=100_000)


def test_bytes_that_are_no_text_arrive_as_they_are(practice_keys: Any, tmp_path: Path) -> None:
    async def scenario(it: Live) -> None:
        job = await run(it, r"printf 'a\0b\377\376\303(\355\240\200\033[2Jz'")
        kept = it.core._practice_routes._logs.read(job, 0, 100)
        assert kept == b"a\0b\xff\xfe\xc3(\xed\xa0\x80\x1b[2Jz"
        shown = await read(it, job)
        assert shown.startswith("a\0b") and "\ufffd" in shown

    run_scenario(practice_keys, tmp_path, scenario)


def test_a_log_without_space_for_the_notice_fails_no_job(
    practice_keys: Any, tmp_path: Path
) -> None:
    async def scenario(it: Live) -> None:
        await run(it, "echo much more than ten bytes")

    run_scenario(practice_keys, tmp_path, scenario, log_limit=10)


def test_a_character_that_is_cut_in_two_pages_is_read_whole(
    practice_keys: Any, tmp_path: Path
) -> None:
    async def scenario(it: Live) -> None:
        log = await read(it, await run(it, "yes 'äöü€' | head -c 1600000"))
        assert "\ufffd" not in log[:-2] and log.startswith("äöü€\n")

    run_scenario(practice_keys, tmp_path, scenario)


def test_all_logs_together_are_bounded(make_practice: Any, tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "github.db")
    limits = PracticeSettings(log_limit=200, logs_total=250)
    practice = make_practice(settings=limits, store=store)
    jobs = []
    for name in "abcd":
        _, jit = practice.mint(name)
        key = practice.open(jit).json()["session"]
        jobs.append(practice.core.queue_job("acme/app", ("mac",)))
        sent = {"bearer": key, "raw": b"x" * 100, "query": {"offset": 0}}
        assert practice.practice_request("POST", "runner/session/log", **sent).json() == {
            "size": 100
        }
    assert [practice.practice_request("GET", f"jobs/{job}").json()["log_size"] for job in jobs] == [
        0,
        0,
        100,
        100,
    ]
    assert sum(store.log_sizes().values()) == 200
    # The growing log is kept although it is the oldest.
    logs = practice.core._practice_routes._logs
    assert logs.append(jobs[2], 100, b"y" * 80) == 180
    assert [logs.size(job) for job in jobs] == [0, 0, 180, 0]
    store.close()


def test_a_dropped_log_that_restarts_before_a_commit_is_stored(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "github.db")
    store.commit({}, logs=[(1, 0, b"old")])
    store.commit({}, logs=[(1, 0, b"anew")], forgotten_logs=[1])
    assert store.read_log(1, 0, 99) == b"anew"
    store.close()


def test_a_name_with_a_nul_byte_fails_the_job_with_the_reason(
    practice_keys: Any, tmp_path: Path
) -> None:
    async def scenario(it: Live) -> None:
        # The practice routes refuse such a name; another GitHub may not.
        job = it.core.queue_job("acme/app", ("mac",), script="true", job_name="a\0\x1b[2Jb")
        program = await it.start("--jitconfig", it.mint())
        assert await program.ended() == 0
        assert it.core.jobs()[job].conclusion == "failure"
        assert "could not be started: embedded null byte" in it.log(job)
        assert "\x1b" not in program.output and os.linesep in program.output

    run_scenario(practice_keys, tmp_path, scenario)
