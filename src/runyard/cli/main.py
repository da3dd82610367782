"""The `runyard` command: a group whose commands are loaded only when they are asked for.

Start-up time matters for a tool that people type, so `runyard --help` reads a table and imports nothing
of the fleet. Each command lives in a module of its own beside this one and exposes one click command of
the same name.

Invariants:
- Bad input ends with one line on stderr, `runyard: …`, and exit code 2; never with a traceback.
- A command is listed only if its module is installed; a test loads every entry of the table.
- An interrupt ends quietly with exit code 130, as shells expect it.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.util import find_spec

import click

from runyard.cli.children import unwind_on_terminate

# Command name → the one line that `--help` shows, so that listing commands imports none of them.
COMMANDS = {
    "explain": "Say why a job waits, or why a Pod, a pool or a runner is as it is.",
    "github": "Make a GitHub App for the fleet, and check the connection.",
    "tenant": "See and change tenants: limits, shares, a pause.",
    "job": "See jobs, and cancel or repeat them at GitHub.",
    "processor": "Turn uploaded Xcode result bundles into rows, on any machine.",
    "server": "Run a replica of the dispatch server on a Postgres and a cluster.",
    "migrate": "Bring the database's schema to this release.",
    "prove": "Explore every reachable state of the slot machine and check its invariants.",
    "practice": "Push a job to the practice GitHub of a machine that is up, and watch it run.",
    "xcresult": "Read Apple's test results (.xcresult) on any machine, without Xcode.",
    "up": "Run the whole fleet on this machine, or a demo of it with faults.",
    "sim": "Run the whole fleet under virtual time, with faults, from one number.",
}

HELP = """A self-healing CI runner fleet for macOS and Linux.

A Mac mini joins Kubernetes as a Node; a Pod bound to it becomes one virtual machine; the machine runs
exactly one GitHub Actions job and is gone. Whatever breaks on the way heals by itself.

\b
Start here:
  runyard up --demo                       20 real jobs on this machine, four faults, a count of what is left
  runyard up                              the whole fleet on this machine, until Ctrl-C
  runyard github connect --org acme       a GitHub App for your runners; then 'runyard server --help'
  runyard sim --seed 1 --hours 2 --demo   watch two hours of a simulated fleet's life
  runyard sim --seeds 100 --hours 1       a hundred different hours; failures name their number
  runyard prove                           every state that a slot can reach
  runyard xcresult show App.xcresult      what Xcode's tests did, read on any machine

Exit codes: 0 all is well, 1 an invariant was broken or a run failed, 2 the command line was wrong, or
nothing could be begun.
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is used."""

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
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        click.echo(f"{name}: {_one_line(error)}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has gone. Nothing is left to say, and nobody is left to say it to.
        sys.stderr.close()
        return 141
    return result if isinstance(result, int) else 0


def _one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{message.rstrip('.')}. Try '{error.ctx.command_path} --help'."
    return message


def main() -> None:
    """Entry point of the console command `runyard`."""
    unwind_on_terminate()
    sys.exit(run(cli, name="runyard"))


if __name__ == "__main__":
    main()
