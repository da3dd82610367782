"""Parses the address of a database: a URL, or a libpq connection string.

Invariant: an address that cannot be used is never repeated, not even in part, because it holds a password. libpq's
error messages repeat it, so it is parsed here before connecting.
"""

from psycopg import Error
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from runyard.db.contract import DatabaseError


class BadAddress(DatabaseError):
    """That is not the address of a Postgres database."""

    def __init__(self) -> None:
        super().__init__(
            "that is not the address of a Postgres database; write it as postgresql://USER:PASSWORD@HOST/NAME,"
            " with % as %25, @ as %40 and / as %2F in the password"
        )


def whole(conninfo: str, **more: str | int) -> str:
    """Return the address with these settings added; raises `BadAddress` if it is invalid."""
    try:
        parts = conninfo_to_dict(conninfo)
        given = make_conninfo(conninfo, **more)
    except Error:
        raise BadAddress from None
    # A password with an unescaped @ or / is cut there, so host and port may contain a part of it.
    ports = str(parts.get("port") or "").replace(",", "")
    if "@" in str(parts.get("host") or "") or (ports and not (ports.isascii() and ports.isdigit())):
        raise BadAddress
    return given
