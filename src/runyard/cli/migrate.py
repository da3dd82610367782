"""`runyard migrate`: the schema's steps of a release, before it starts and after the last one is gone."""

from pathlib import Path
from typing import Literal

import click
import msgspec

from runyard.cli.serverfiles import BadSetting, database
from runyard.cli.serverflags import DATABASE
from runyard.db import migrate as steps
from runyard.db.contract import DatabaseError, Unavailable


@click.command(context_settings={"max_content_width": 110})
@click.argument("phase", type=click.Choice(["pre", "post", "all"]), default="all")
@DATABASE[0]
@DATABASE[1]
@click.option("--dry-run", is_flag=True, help="Say what would be applied, and apply nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for scripts.")
def migrate(
    phase: Literal["pre", "post", "all"],
    database_url: str,
    database_url_file: Path | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring the schema to this release; doing it twice does no harm.

    \b
    runyard migrate pre     before the new release starts: only adds, so the old one keeps working
    runyard migrate post    when no replica of the old release runs any more: takes away what only it needed
    runyard migrate         both, for a database that nothing runs on
    """
    conninfo = database(
        "--database-url", database_url, database_url_file, why="it says which database to change"
    )
    try:
        if steps.foreign(conninfo):
            raise BadSetting(
                "--database-url: the database holds tables that are not runyard's. Name an empty one, or runyard's own"
            )
        names = (
            steps.pending(conninfo, phase=phase) if dry_run else steps.apply(conninfo, phase=phase)
        )
    except Unavailable as error:
        raise BadSetting(
            f"--database-url: {error}. Start the database, or correct the URL"
        ) from None
    except DatabaseError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(msgspec.json.encode({"pending" if dry_run else "applied": names}).decode())
        return
    word = "pending" if dry_run else "applied"
    click.echo("\n".join(f"{word} {name}" for name in names) or f"nothing {word}: all is there")
