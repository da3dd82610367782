"""A scope is safe in a path and can be parsed from its text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.github.scope import Scope, organisation, parse, repository

NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,100}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)


@given(NAMES, st.one_of(st.just(""), NAMES), st.integers(1, 2**40))
def test_a_scope_can_be_read_back(owner: str, repo: str, installation: int) -> None:
    scope = Scope(owner=owner, repo=repo, installation_id=installation)
    assert parse(str(scope), installation_id=installation) == scope


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orgs/",
        "orgs/a/b",
        "repos/acme",
        "repos/acme/",
        "repos/acme/app/x",
        "repos/../orgs",
        "repos/acme/..",
        "orgs/a?b",
        "orgs/a%2fb",
        "orgs/a b",
        "orgs/äcme",
        "orgs/acme\n",
        "users/acme",
    ],
)
def test_nothing_that_could_reach_another_endpoint_is_a_scope(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text, installation_id=1)


def test_kinds_and_owner() -> None:
    repo = repository("acme/app", installation_id=3)
    assert (repo.kind, str(repo)) == ("repos", "repos/acme/app")
    assert repo.organisation() == organisation("acme", installation_id=3)
    assert repo.organisation().kind == "orgs"


@pytest.mark.parametrize("installation", [0, -1])
def test_a_scope_without_installation_cannot_exist(installation: int) -> None:
    with pytest.raises(ValueError, match="installation"):
        organisation("acme", installation_id=installation)
