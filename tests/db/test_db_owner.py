"""Two machines on one database would fight over its rows: the second one must learn whose it is."""

import pytest

from runyard.db.contract import DatabaseError, Unavailable
from runyard.db.owner import Owner, claim

ONE, TWO = Owner("1" * 32, "/data/one"), Owner("2" * 32, "/data/two")


def test_the_first_machine_keeps_the_database(database_url: str) -> None:
    assert claim(database_url, ONE) == ONE
    assert claim(database_url, TWO) == ONE
    assert claim(database_url, ONE) == ONE


def test_a_machine_whose_directory_was_moved_is_still_the_owner(database_url: str) -> None:
    claim(database_url, ONE)
    moved = Owner(ONE.id, "/elsewhere")
    assert claim(database_url, moved) == moved
    assert claim(database_url, TWO) == moved


def test_a_database_without_our_tables_is_an_error_of_its_kind(empty_database_url: str) -> None:
    with pytest.raises(DatabaseError, match="owner"):
        claim(empty_database_url, ONE)


def test_a_database_that_does_not_answer_is_told_apart() -> None:
    with pytest.raises(Unavailable):
        claim("host=/no/such/folder dbname=x connect_timeout=2", ONE)
