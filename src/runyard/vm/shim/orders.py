"""Writes the part of a shim's order by which the host polls for a guest (`polling.py` carries it out)."""

from typing import Any

import msgspec

from runyard.vm.contract import HostPolling, VmSpec
from runyard.vm.guest import envfile
from runyard.vm.shim.control import program_argv
from runyard.vm.shim.directory import ShimDirectory, private
from runyard.vm.shim.exits import TOKEN
from runyard.vm.shim.polling import exports
from runyard.wire import names

# What a guest's own script needs to poll: a runner does not, and a job must not learn where the server is.
_OF_THE_POLL = (names.ENV_DISPATCH_URL, names.ENV_IDLE_TIMEOUT)
# Systems refuse to run a program with more: macOS at 1 MiB in all, Linux at 128 KiB for one variable.
_LARGEST_ENV, _LARGEST_VARIABLE = 512 << 10, 120 << 10


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the host polls and how long it waits."""

    pause: float = 2.0  # seconds between two polls
    timeout: float = 35.0  # for one; the server may hold it for 25 of them
    boot: float = 900.0  # until a guest has to answer
    silence: float = 600.0  # without output of the poller; more than its longest pause and poll


def stage_polling(directory: ShimDirectory, spec: VmSpec) -> None:
    """Keeps the Pod's token for the poller, in a file of this user; raises OSError and `BadEnvironment`.

    The environment is checked now: when there is a job, it is too late.
    """
    envfile.encode(spec.env)
    largest = max((len(exports({name: value})) for name, value in spec.env), default=0)
    if largest > _LARGEST_VARIABLE or len(exports(dict(spec.env))) > _LARGEST_ENV:
        raise envfile.BadEnvironment(
            f"the environment is too large for a program: at most {_LARGEST_ENV >> 10} KiB,"
            f" and {_LARGEST_VARIABLE >> 10} KiB for one variable"
        )
    if spec.token:
        private(directory.state / TOKEN, spec.token.encode())


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
        "silence": pace.silence,
        "poller": program_argv("runyard.vm.shim.poller", str(directory.state)),
        "exec": exec_argv,
        "runner": polling.runner,
        "archive": polling.archive,
        "env": [[name, value] for name, value in env if name not in _OF_THE_POLL],
        "idle": float(idle) if idle.isascii() and idle.isdigit() else 0.0,
    }
