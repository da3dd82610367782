"""Binds a database to one machine: its name is stored, and another machine is refused.

Two machines on one database would serve each other's jobs with keys that the other does not have, and the rows do not
show which machine they belong to.
"""

from typing import Any

import msgspec
import psycopg

from runyard.db.address import whole
from runyard.db.contract import DatabaseError, Unavailable

_CLAIM = """
INSERT INTO machine (id, place) VALUES (%s, %s)
ON CONFLICT (only_one) DO UPDATE SET place = excluded.place WHERE machine.id = excluded.id
"""
_READ = "SELECT id, place FROM machine"


class Owner(msgspec.Struct, frozen=True):
    """A machine: its name, and the directory of its state."""

    id: str
    place: str


def claim(conninfo: str, machine: Owner) -> Owner:
    """Bind the database to this machine unless it is bound; return its owner. The schema must exist."""
    row = _owner(conninfo, machine)
    assert row is not None  # it has just been written, or was there
    return row


def owner_of(conninfo: str) -> Owner | None:
    """Return the machine that the database is bound to, or None. The schema must exist."""
    return _owner(conninfo, None)


def _owner(conninfo: str, new_owner: Owner | None) -> Owner | None:
    try:
        with psycopg.connect(whole(conninfo), autocommit=True, prepare_threshold=None) as link:
            if new_owner is not None:
                link.execute(_CLAIM, [new_owner.id, new_owner.place])
            row: Any = link.execute(_READ).fetchone()
    except psycopg.OperationalError as error:
        raise Unavailable(f"no connection: {error}") from error
    except psycopg.Error as error:
        raise DatabaseError(f"the owner of the database cannot be read: {error}") from error
    return None if row is None else Owner(*row)
