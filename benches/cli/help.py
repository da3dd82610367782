"""Measures the CPU time of `--help` of every command, as a multiple of importing click and rich alone.

    python -m benches.cli.help       prints target, measured value and verdict; exits with 1 if a target is missed

Both are measured as whole processes, in CPU seconds (user and system), alternately, each the best of some rounds: so a
busy machine slows down both.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from benches import table

from runyard.cli.main import COMMANDS, cli

ROUNDS = 7
TOP, COMMAND = 2.0, 4.0
LIMIT = [sys.executable, "-c", "import click, rich"]
BIN = Path(sys.executable).parent


def cpu(argv: list[str]) -> float:
    """The CPU seconds of one process."""
    nowhere = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    pid = os.posix_spawn(argv[0], argv, dict(os.environ), file_actions=[nowhere])
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(argv)} failed with status {status}")
    return used.ru_utime + used.ru_stime


def commands() -> Iterator[tuple[str, ...]]:
    """Yield every command and subcommand."""
    yield ("runyard",)
    context = click.Context(cli, info_name="runyard")
    for name in sorted(COMMANDS):
        yield ("runyard", name)
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            yield from (("runyard", name, each) for each in sorted(command.commands))
    yield ("tart-kubelet",)


def main() -> int:
    """Measure and print; returns 1 if a limit is exceeded."""
    lines = {words: [str(BIN / words[0]), *words[1:], "--help"] for words in commands()}
    best = dict.fromkeys(lines, float("inf"))
    limit = float("inf")
    for _ in range(ROUNDS):
        limit = min(limit, cpu(LIMIT))
        for words, argv in lines.items():
            best[words] = min(best[words], cpu(argv))
    rows = [
        table.at_most(
            " ".join((*words, "--help")),
            seconds / limit,
            TOP if words == ("runyard",) else COMMAND,
            "times the limit",
            inclusive=True,
        )
        for words, seconds in best.items()
    ]
    notes = [
        f"The limit, importing click and rich, takes {limit * 1000:.0f} ms of CPU here.",
        f"Each number is the best of {ROUNDS} rounds.",
    ]
    return table.show(rows, notes)


if __name__ == "__main__":
    sys.exit(main())
