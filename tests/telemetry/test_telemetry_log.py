"""Tests logs: each line has its ids and its time, and no secret."""

import asyncio
import io
import logging
from collections.abc import Iterator

import msgspec
import pytest

from runyard.telemetry import log

JIT = "eyJ0eXAiOiJKSVQiLCJydW5uZXIiOiJhYmNkZWZnaGlqa2xtbm9wIn0="
TOKEN = "ghs_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure(level="debug", now=lambda: 1_700_000_000.25, stream=stream)
    yield stream
    log.configure(level="critical")


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("encoding", "at"),
    [
        ("epoch", 1_700_000_000.25),
        ("millis", 1_700_000_000_250.0),
        ("nano", 1_700_000_000_250_000_000),
        ("iso8601", "2023-11-14T22:13:20.250Z"),
        ("rfc3339", "2023-11-14T22:13:20Z"),
        ("rfc3339nano", "2023-11-14T22:13:20.250000Z"),
    ],
)
def test_lines_for_readers_of_zap_have_its_keys(encoding: log.ZapTime, at: object) -> None:
    stream = io.StringIO()
    log.configure(now=lambda: 1_700_000_000.25, stream=stream, zap_time=encoding)
    log.get_logger("agent", node="mini-1").warning("slow", token=TOKEN)
    log.configure(level="critical")
    (line,) = lines(stream)
    assert list(line)[:4] == ["level", "ts", "logger", "msg"]
    assert line == {
        "level": "warn",
        "ts": at,
        "logger": "agent",
        "msg": "slow",
        "node": "mini-1",
        "token": log.REDACTED,
    }


def test_a_library_does_not_print_between_our_lines(
    out: io.StringIO, capfd: pytest.CaptureFixture[str]
) -> None:
    library = logging.getLogger("some.library")
    library.warning("no contact with %s", f"https://me:{TOKEN}@host")
    library.debug("every step")
    try:
        raise ValueError("inside")
    except ValueError:
        library.exception("it failed")
    first, second = lines(out)
    assert (first["logger"], first["level"]) == ("some.library", "warning")
    assert TOKEN not in out.getvalue()
    assert second["level"] == "error" and "inside" in str(second["exception"])
    assert capfd.readouterr().err == ""


def test_a_connection_that_a_pool_replaces_is_no_line_and_a_pool_that_fails_is_one(
    out: io.StringIO,
) -> None:
    # psycopg_pool warns of each connection that was closed on purpose: an ordinary event at every restart of Postgres.
    pool = logging.getLogger("psycopg.pool")
    pool.warning("discarding closed connection: %s", "BAD")
    logging.getLogger("psycopg").warning("of another part")
    pool.error("cannot connect")
    assert [(each["logger"], each["event"]) for each in lines(out)] == [
        ("psycopg", "of another part"),
        ("psycopg.pool", "cannot connect"),
    ]


def test_a_line_carries_the_injected_time_and_the_bound_ids(out: io.StringIO) -> None:
    async def scenario() -> None:
        logger = log.get_logger("pools", pool="macs")
        with log.bound(reconcile_id="r1"):
            async with asyncio.TaskGroup() as group:
                group.create_task(child(logger))
        logger.warning("after")

    async def child(logger: log.Logger) -> None:
        logger.info("created", pod="p-1")

    asyncio.run(scenario())
    first, second = lines(out)
    assert first == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "info",
        "logger": "pools",
        "event": "created",
        "pool": "macs",
        "pod": "p-1",
        "reconcile_id": "r1",
    }
    assert "reconcile_id" not in second


@pytest.mark.parametrize(
    "fields",
    [
        {"token": "short"},
        {"jit_config": "short"},
        {"encodedJitConfig": "short"},
        {"headers": {"Authorization": "short"}},
        {"private_key": "short"},
        {"nested": [{"client_secret": "short"}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_field_named_like_a_secret_is_not_written(
    out: io.StringIO, fields: dict[str, object]
) -> None:
    log.get_logger("t").info("event", **fields)
    assert "short" not in out.getvalue()
    assert log.REDACTED in out.getvalue()


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"answer was {JIT}", JIT),
        (f"git clone with {TOKEN} failed", TOKEN),
        ("sent Authorization: Bearer abcdefghijklmnop", "abcdefghijklmnop"),
        ("postgresql://user:hunter2@db/runyard", "hunter2"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
    ],
    ids=["jit", "github-token", "bearer", "url-password", "private-key"],
)
def test_a_value_that_looks_like_a_secret_is_not_written(
    out: io.StringIO, text: str, secret: str
) -> None:
    logger = log.get_logger("t")
    logger.info("event", detail=text, deep={"a": (text,)}, raw=text.encode())
    logger.info(text)
    try:
        raise ValueError(text)
    except ValueError:
        logger.exception("failed")
    assert secret not in out.getvalue()
    assert len(lines(out)) == 3


def test_ordinary_fields_are_left_alone(out: io.StringIO) -> None:
    log.get_logger("t").info(
        "polled",
        jitter=0.5,
        runner_name="macs-abc",
        count=3,
        image="registry.example/org/image@sha256:00ff",
    )
    (line,) = lines(out)
    assert line["jitter"] == 0.5
    assert line["runner_name"] == "macs-abc"
    assert line["image"] == "registry.example/org/image@sha256:00ff"
    assert log.REDACTED not in out.getvalue()


def test_below_the_level_nothing_is_written_or_computed(out: io.StringIO) -> None:
    log.configure(level="warning", now=lambda: 1 / 0, stream=out)
    log.get_logger("t").info("silent")
    assert out.getvalue() == ""


def test_an_unconfigured_process_logs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    log.get_logger("t").error("dropped")
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_console_lines_are_for_people_and_redacted_too() -> None:
    stream = io.StringIO()
    log.configure(json=False, now=lambda: 0.0, stream=stream)
    log.get_logger("t").info("hello", token="abc", pool="macs")
    log.configure(level="critical")
    assert "hello" in stream.getvalue()
    assert "pool=macs" in stream.getvalue()
    assert "abc" not in stream.getvalue()


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="loud"):
        log.configure(level="loud")
