"""`runyard migrate`: applies a release's database migrations, before it starts and after the old one stopped."""

from pathlib import Path
from typing import Literal

import click
import msgspec

from runyard.cli.options import BadSetting
from runyard.cli.serverfiles import database
from runyard.cli.serverflags import DATABASE


@click.command(context_settings={"max_content_width": 110})
@click.argument("phase", type=click.Choice(["pre", "post", "all"]), default="all")
@DATABASE[0]
@DATABASE[1]
@click.option("--dry-run", is_flag=True, help="Print what would be applied, without applying it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for scripts.")
def migrate(
    phase: Literal["pre", "post", "all"],
    database_url: str,
    database_url_file: Path | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Migrate the database schema to this release. Running it again changes nothing.

    \b
    runyard migrate pre     before the new release starts: only adds, so the old release keeps working
    runyard migrate post    after the last replica of the old release has stopped: removes what only it needed
    runyard migrate         both, while no replica runs

    \b
    runyard migrate pre --database-url-file db.url --dry-run      print what would be applied
    """
    from runyard.db import migrate as steps
    from runyard.db.contract import DatabaseError, Unavailable

    conninfo = database(
        "--database-url", database_url, database_url_file, why="it says which database to change"
    )
    try:
        if steps.foreign(conninfo):
            raise BadSetting(
                "--database-url: the database contains other tables. Use an empty database, or runyard's own"
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
    click.echo(
        "\n".join(f"{word} {name}" for name in names) or f"nothing {word}: the schema is up to date"
    )
