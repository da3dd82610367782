"""Writes the part of a shim's order by which the host polls for a guest (`polling.py` carries it out)."""

from typing import Any

import msgspec

from runyard.vm.contract import HostPolling
from runyard.vm.shim.control import program_argv
from runyard.vm.shim.directory import ShimDirectory, private
from runyard.vm.shim.exits import TOKEN
from runyard.wire import names

# What a guest's own script needs to poll: a runner does not, and a job must not learn where the server is.
_OF_THE_POLL = (names.ENV_DISPATCH_URL, names.ENV_IDLE_TIMEOUT)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the host polls and how long it waits."""

    pause: float = 2.0  # seconds between two polls
    timeout: float = 35.0  # for one; the server may hold it for 25 of them
    boot: float = 900.0  # until a guest has to answer


def stage_token(directory: ShimDirectory, token: str) -> None:
    """Keeps the Pod's token for the poller, in a file of this user; raises OSError."""
    if token:
        private(directory.state / TOKEN, token.encode())


def polling_order(
    directory: ShimDirectory,
    polling: HostPolling,
    *,
    env: tuple[tuple[str, str], ...],
    exec_argv: list[str],
    pace: Pace | None = None,
) -> dict[str, Any]:
    """The order's `polling`. `exec_argv`, followed by words, runs them in the guest with input and output passed on."""
    pace = pace or Pace()
    idle = dict(env).get(names.ENV_IDLE_TIMEOUT, "")
    return {
        "url": polling.url,
        "ca": polling.ca,
        "pause": pace.pause,
        "timeout": pace.timeout,
        "boot": pace.boot,
        "poller": program_argv("runyard.vm.shim.poller", str(directory.state)),
        "exec": exec_argv,
        "runner": polling.runner,
        "archive": polling.archive,
        "env": [[name, value] for name, value in env if name not in _OF_THE_POLL],
        "idle": float(idle) if idle.isascii() and idle.isdigit() else 0.0,
    }
