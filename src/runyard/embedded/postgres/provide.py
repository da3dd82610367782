"""Provides a database: the one named in the environment, or an embedded server.

`DATABASE_URL` has precedence. It is used unchanged (and by tests as the maintenance database).
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runyard.embedded.postgres.server import EmbeddedPostgres, HostSetup


@contextmanager
def provide(
    data_dir: Path,
    *,
    durable: bool = True,
    database: str = "postgres",
    max_connections: int = 50,
    cache_dir: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Yields a conninfo; an embedded server runs in `data_dir` until the context ends."""
    given = (os.environ if environ is None else environ).get("DATABASE_URL", "")
    if given:
        yield given
        return
    server = EmbeddedPostgres(
        data_dir,
        durable=durable,
        database=database,
        max_connections=max_connections,
        host=HostSetup(cache_dir=cache_dir, environ=environ),
    )
    with server as conninfo:
        yield conninfo
