"""`runyard practice`: push a job to a practice GitHub, and watch it run; `practice serve` runs one.

This module declares the options; `practicerun` runs the command.
"""

import sys
from pathlib import Path

import click

from runyard.cli.options import DATA, BadSetting

LABEL = "runyard"


class NotUp(BadSetting):
    """`runyard up` is not running there."""


class _Practice(click.Group):
    """Pushes a job, unless the first word is `serve`; `push` may be written or left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args[:1] in (["push"], ["serve"])
        return super().parse_args(ctx, args if named else ["push", *args])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["push", "serve"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "serve":
            return push
        from runyard.cli.practiceserve import serve

        return serve


@click.group(cls=_Practice, add_help_option=False)
def practice() -> None:
    """Push a job, or serve a practice GitHub."""


@click.command("practice", context_settings={"max_content_width": 110})
@click.argument("script", required=False)
@DATA
@click.option("--name", default="", help="Name of the job.")
@click.option("--label", default=LABEL, show_default=True, help="Label that a runner must have.")
@click.option(
    "--no-wait", is_flag=True, help="Queue the job and print its id, without waiting for it."
)
@click.option("--json", "as_json", is_flag=True, help="Print the job as JSON instead of its log.")
@click.option(
    "--raw",
    is_flag=True,
    help="Keep control characters in the log. Not allowed on a terminal, which would interpret them.",
)
def push(
    script: str | None,
    data: Path | None,
    name: str,
    label: str,
    *,
    no_wait: bool,
    as_json: bool,
    raw: bool,
) -> None:
    """Push a job to the practice GitHub of 'runyard up', wait for it, and show its log.

    SCRIPT is a shell script; without it, the script is read from standard input.

    \b
    runyard practice 'echo hello from $GITHUB_JOB'
    runyard practice --name build < build.sh
    runyard practice serve --help             run only a practice GitHub, for a fleet on a cluster

    Exit codes: 0 the job succeeded, 1 it did not, 2 the job was not accepted or its conclusion is unknown.
    """
    if raw and sys.stdout.isatty():
        raise click.UsageError(
            "--raw is not allowed on a terminal. Redirect the output to a file or a pipe"
        )
    text = _text(script)
    from runyard.cli.practicerun import Job, run

    job = Job(script=text, name=name, label=label)
    sys.exit(run(job, data, wait=not no_wait, as_json=as_json, raw=raw))


def _text(script: str | None) -> str:
    """The script: the argument, or all of standard input."""
    try:
        if script is None:
            return sys.stdin.buffer.read().decode()
        script.encode()  # an argument may contain surrogates for bytes that are not UTF-8
    except UnicodeError:
        raise click.UsageError("the script is not UTF-8 text") from None
    return script
