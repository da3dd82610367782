"""A second machine on one database is refused with the name of its owner."""

import pytest

from runyard.db.contract import DatabaseError, Unavailable
from runyard.db.owner import Owner, claim

ONE, TWO = Owner("1" * 32, "/data/one"), Owner("2" * 32, "/data/two")


def test_the_first_machine_stays_the_owner(database_url: str) -> None:
    assert claim(database_url, ONE) == ONE
    assert claim(database_url, TWO) == ONE
    assert claim(database_url, ONE) == ONE


def test_a_machine_whose_directory_was_moved_is_still_the_owner(database_url: str) -> None:
    claim(database_url, ONE)
    moved = Owner(ONE.id, "/elsewhere")
    assert claim(database_url, moved) == moved
    assert claim(database_url, TWO) == moved


def test_a_database_without_our_tables_is_a_database_error(empty_database_url: str) -> None:
    with pytest.raises(DatabaseError, match="owner"):
        claim(empty_database_url, ONE)


def test_an_unreachable_database_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        claim("host=/no/such/folder dbname=x connect_timeout=2", ONE)
