"""Runs a step periodically: deadlines, backoff, metrics.

Every periodic loop is `run_loop`, so that a step that hangs or fails is visible: each step has a deadline, a success
is published with its time, a failure is counted by its error and followed by a backoff.

Which failures are survived is the caller's decision:
- *Expected* failures are the dependency errors that the caller lists (`TRANSPORT_ERRORS`, `DatabaseError`, …), and
  the step's own deadline. They are counted and logged, and the loop continues. An exception group is expected if
  each of its members is.
- *Every other error ends the loop* and, through its TaskGroup, the process: a `TypeError` that is retried every ten
  seconds would be a component that does nothing and looks healthy. Listing `Exception` or a class of programming
  errors as expected is refused.
- Cancellation always propagates.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import NoReturn

from runyard.clock import Clock
from runyard.telemetry.catalogue import (
    RUNYARD_LOOP_FAILURES_TOTAL,
    RUNYARD_LOOP_LAST_SUCCESS_SECONDS,
)
from runyard.telemetry.freshness import Freshness, due_within
from runyard.telemetry.log import Logger
from runyard.telemetry.meter import Meter
from runyard.telemetry.names import error_slug

Expected = tuple[type[Exception], ...]

PROGRAMMING_ERRORS: Expected = (
    TypeError,
    AttributeError,
    AssertionError,
    NameError,
    KeyError,
    IndexError,
    ArithmeticError,
    RuntimeError,
    ImportError,
)
_JITTER = 0.1
_LEAST = 1.0  # seconds between two steps, however often the loop is woken


async def run_loop(
    name: str,
    step: Callable[[], Awaitable[object]],
    *,
    clock: Clock,
    meter: Meter,
    log: Logger,
    every: float,
    deadline: float,
    jitter_rng: random.Random | None = None,
    expected: Expected,
    max_backoff: float = 300.0,
    freshness: Freshness | None = None,
    wakeup: asyncio.Event | None = None,
) -> NoReturn:
    """Run `step` at once, and again `every` seconds after it ended, forever; sooner if `wakeup` is set.

    After n failures in a row the wait is `every * 2**n`, at most `max_backoff` (but never less than
    `every`), and `wakeup` does not shorten it. With `jitter_rng` each wait is up to a tenth longer, so that replicas
    drift apart.
    The loop and each success are reported to `freshness`. `name` is a member of `Loop`.
    """
    _check(expected)
    failures = 0
    if freshness is not None:
        freshness.expect(name, due_within(every=every, deadline=deadline))
    meter.set(RUNYARD_LOOP_LAST_SUCCESS_SECONDS, clock.now(), loop=name)
    while True:
        kind = await _step(
            name, step, clock=clock, meter=meter, log=log, deadline=deadline, expected=expected
        )
        if kind is None:
            failures = 0
            meter.set(RUNYARD_LOOP_LAST_SUCCESS_SECONDS, clock.now(), loop=name)
            if freshness is not None:
                freshness.succeeded(name)
        else:
            failures += 1
        wait = max(every, min(every * 2.0 ** min(failures, 30), max_backoff))
        if jitter_rng is not None:
            wait *= 1.0 + _JITTER * jitter_rng.random()
        await _pause(clock, wait, None if failures else wakeup)


async def _pause(clock: Clock, seconds: float, wakeup: asyncio.Event | None) -> None:
    """Wait, at least a second; what sets `wakeup` during the next step ends the pause after it."""
    least = seconds if wakeup is None else min(seconds, _LEAST)
    await clock.sleep(least)
    if wakeup is None:
        return
    with contextlib.suppress(TimeoutError):
        async with clock.timeout(seconds - least):
            await wakeup.wait()
    wakeup.clear()


async def _step(
    name: str,
    step: Callable[[], Awaitable[object]],
    *,
    clock: Clock,
    meter: Meter,
    log: Logger,
    deadline: float,
    expected: Expected,
) -> str | None:
    """Run one step; returns the slug of its error, or None if it succeeded."""
    limit = clock.timeout(deadline)
    try:
        async with limit:
            await step()
    except Exception as error:
        late = isinstance(error, TimeoutError) and limit.expired()
        kind = "deadline" if late else error_slug(error)
        meter.inc(RUNYARD_LOOP_FAILURES_TOTAL, loop=name, error=kind)
        if not late and not _is_expected(error, expected):
            log.critical("loop died", loop=name, kind=kind, exc_info=error)
            raise
        log.warning("loop step failed", loop=name, kind=kind, error=str(error) or repr(error))
        return kind
    return None


def _is_expected(error: Exception, expected: Expected) -> bool:
    if isinstance(error, ExceptionGroup):
        return all(_is_expected(member, expected) for member in error.exceptions)
    return isinstance(error, expected)


def _check(expected: Expected) -> None:
    for kind in expected:
        if any(issubclass(error, kind) for error in PROGRAMMING_ERRORS):
            raise ValueError(
                f"expecting {kind.__name__} would hide programming errors; list narrower errors"
            )
