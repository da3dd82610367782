"""The flags that the `xcresult` commands share, and the formats that they offer."""

from pathlib import Path

import click

FORMATS = ("tree", "json", "junit", "markdown", "github", "apple")
COVERAGE_FORMATS = ("json", "cobertura", "lcov", "text")
MARKDOWN_BYTES = 1_000_000  # GitHub accepts 1 MiB for the summary of one step
ANNOTATIONS = 10  # of each level; GitHub shows no more for a step

PATH = click.argument("path", metavar="PATH")
PATHS = click.argument("paths", metavar="PATH...", nargs=-1, required=True)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
PROCESSES = click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of processes that read a very large bundle.",
)
OUTPUT = click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of standard output.",
)
