"""Configures structured logs and removes credentials from them.

`configure` is called once per process (by the command line or the simulator); before that everything below
*critical* is dropped, so tests and simulations are quiet by default. Get a logger while wiring a component, after
`configure`, and pass it on, not at import: a logger keeps the level and the output of the moment it was made,
so that a filtered call costs nothing.

Invariants:
- Time comes from the clock that was given to `configure`, so a simulated log carries simulated time.
- Credentials never reach the output: they are recognised by the name of the field or by the form of the
  value, also inside an exception's text and inside nested values.
- Lines of libraries, which use Python's own logging, are lines of this log like all others.
- Identifiers such as `reconcile_id` are bound to the running task by `bound` and reach every line that
  is written below it, also in tasks started there.
"""

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from runyard.clock import RealClock
from runyard.wire.instants import to_rfc3339, to_rfc3339_micro

Logger = FilteringBoundLogger

REDACTED = "[redacted]"
_SECRET_WORDS = frozenset(
    (
        *("token", "tokens", "jit", "jwt", "bearer", "authorization", "cookie", "signature"),
        *("secret", "secrets", "password", "passwd", "credential", "credentials"),
        *("apikey", "privatekey"),
    )
)
_SECRET_PAIRS = ("private_key", "api_key", "encoded_config", "access_key")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_SECRET_VALUE = re.compile(
    r"gh[a-z]_[A-Za-z0-9]{16,}"  # GitHub's tokens
    r"|github_pat_[A-Za-z0-9_]{16,}"
    r"|(?i:\b(?:bearer|basic|token))\s+[A-Za-z0-9._~+/=-]{12,}"  # an authorization header
    r"|\be[yw][A-Za-z0-9_+/-]{20,}[A-Za-z0-9_.+/=-]*"  # base64 of JSON: JWTs and JIT configurations
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)",  # user and password of a URL
    re.DOTALL,
)
_DEPTH = 6
_FIRST = ("time", "level", "ts", "logger", "event", "msg")
ZapTime = Literal["epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"]
_ZAP_TIMES: dict[ZapTime, Callable[[float], object]] = {
    "epoch": lambda now: now,
    "millis": lambda now: now * 1e3,
    "nano": lambda now: round(now * 1e6) * 1000,
    "iso8601": lambda now: f"{to_rfc3339_micro(now)[:-4]}Z",
    "rfc3339": to_rfc3339,
    "rfc3339nano": to_rfc3339_micro,
}
_ZAP_LEVELS = {"warning": "warn", "critical": "fatal"}


class _LibraryLines(logging.Handler):
    """Writes what a library logs as a line of our log; below a warning only with the level debug."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            logger = get_logger(record.name)
            logger.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
        except Exception:  # noqa: BLE001 as every handler: a bad line must not end its caller
            self.handleError(record)


_LIBRARIES = _LibraryLines()
# Loggers whose warnings are about ordinary events: a pool that replaces a connection which was closed on purpose.
_QUIET = ("psycopg.pool",)


class _Stderr:
    """Writes to the current `sys.stderr`, which may have been redirected since the start."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(
    *,
    level: str = "info",
    json: bool = True,
    now: Callable[[], float] | None = None,
    stream: TextIO | None = None,
    zap_time: ZapTime | None = None,
) -> None:
    """Set up logging for this process.

    `level` is debug, info, warning, error or critical; anything else is a `ValueError`. With `zap_time`, lines of JSON
    have the keys and levels of zap, the log library of Kubernetes' controllers, and times in this encoding.
    """
    number = _configure(level=level, json=json, now=now, stream=stream, zap_time=zap_time)
    # Python's default prints the bare message of a library between our lines.
    root = logging.getLogger()
    root.addHandler(_LIBRARIES)  # a second time has no effect
    root.setLevel(logging.INFO if number <= logging.DEBUG else max(number, logging.WARNING))
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)


def _configure(
    *,
    level: str,
    json: bool = True,
    now: Callable[[], float] | None = None,
    stream: TextIO | None = None,
    zap_time: ZapTime | None = None,
) -> int:
    """Set up our own lines; returns the number of the level."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"no such log level: {level!r}")
    structlog.configure(
        processors=_processors(json=json, now=now or RealClock().now, zap_time=zap_time),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(stream or cast(TextIO, _Stderr())),
        cache_logger_on_first_use=False,
    )
    return number


def get_logger(name: str, **fields: object) -> Logger:
    """Return a logger whose lines carry `logger=name` and the given fields."""
    return cast(Logger, structlog.get_logger().bind(logger=name, **fields))


@contextlib.contextmanager
def bound(**fields: object) -> Iterator[None]:
    """Bind identifiers to all lines logged inside this block, in this task and in tasks it starts."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


def redact(value: Any, depth: int = _DEPTH) -> Any:
    """Return the value with credentials replaced."""
    if isinstance(value, str):
        return _SECRET_VALUE.sub(REDACTED, value)
    if isinstance(value, bytes):
        return redact(value.decode("utf-8", "replace"), depth)
    if isinstance(value, dict):
        if depth == 0:
            return REDACTED
        return {
            key: REDACTED if is_secret_name(str(key)) and item else redact(item, depth - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item, depth - 1) for item in value] if depth else REDACTED
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value), depth)


def is_secret_name(name: str) -> bool:
    """Return whether a field of this name holds a secret: `jit_config` does, `jitter` does not."""
    words = [word.lower() for word in _WORDS.findall(name)]
    joined = "_".join(words)
    return any(word in _SECRET_WORDS for word in words) or any(p in joined for p in _SECRET_PAIRS)


def _processors(
    *, json: bool, now: Callable[[], float], zap_time: ZapTime | None
) -> list[Processor]:
    def stamp(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["time"] = to_rfc3339_micro(now())
        return event

    def clean(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return cast(EventDict, redact(event))

    def zap(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.pop("time")
        event["ts"] = _ZAP_TIMES[zap_time or "epoch"](now())
        event["level"] = _ZAP_LEVELS.get(event["level"], event["level"])
        event["msg"] = event.pop("event", "")
        return event

    render: Processor = (
        _render_json if json else structlog.dev.ConsoleRenderer(colors=False, timestamp_key="time")
    )
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        stamp,
        structlog.processors.format_exc_info,
        clean,
        *([zap] if json and zap_time else []),
        render,
    ]


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    head = {key: event.pop(key) for key in _FIRST if key in event}
    return msgspec.json.encode({**head, **event}, enc_hook=str).decode()


_configure(level="critical")
