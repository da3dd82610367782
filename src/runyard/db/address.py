"""Where a database is, as people write it: a URL, or words that libpq knows.

Invariant: an address that cannot be used is never repeated, not even in part, because it holds a password. libpq's own
words repeat it, so it is read here before anything connects.
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
    """The address with these settings added, fit to connect with; `BadAddress` if it is none."""
    try:
        parts = conninfo_to_dict(conninfo)
        given = make_conninfo(conninfo, **more)
    except Error:
        raise BadAddress from None
    # A password with a bare @ or / in it is cut there: what is taken for host and port is a piece of it.
    ports = str(parts.get("port") or "").replace(",", "")
    if "@" in str(parts.get("host") or "") or (ports and not (ports.isascii() and ports.isdigit())):
        raise BadAddress
    return given
