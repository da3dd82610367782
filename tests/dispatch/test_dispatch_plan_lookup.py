"""A runner counts as absent only after a complete lookup: nothing unread, nothing left to read, nothing busy."""

import msgspec
import pytest

from runyard.dispatch.machine.events import Retire
from runyard.dispatch.plans.lookup import (
    Account,
    Lookup,
    Place,
    begin,
    ended,
    judge,
    only_these,
    proven,
    with_failure,
    with_installation,
    with_repositories,
    with_runners,
)
from runyard.dispatch.plans.stamped import Leak
from runyard.wire.reasons_dispatch import Left, Why

ACME = Account(login="acme", installation_id=1, organisation=True)
MONA = Account(login="mona", installation_id=2, organisation=False)


def a_leak(uid: str = "u", *, generation: int | None = None, owner: str = "gone") -> Leak:
    event = Retire(
        pod_uid=uid,
        pod_name=f"pod-{uid}",
        pool="mac",
        generation=generation,
        reason=Why.STAMPED_WITHOUT_CLAIM.because(),
    )
    return Leak(uid=uid, age=400.0, event=event, owner=owner)


LEAK = a_leak()


def a_lookup(
    *accounts: Account, known: tuple[Place, ...] = (), before: Lookup | None = None
) -> Lookup:
    return begin((LEAK,), era="1", accounts=accounts, known=known, before=before)


def finish(lookup: Lookup, *, failing: tuple[str, ...] = (), busy: tuple[str, ...] = ()) -> Lookup:
    """Read all that is left; every installation has one repository."""
    while not ended(lookup):
        place = lookup.todo[0]
        if place.name in failing:
            lookup = with_failure(lookup, place, "404")
        elif not place.scope:
            lookup = with_repositories(lookup, place, (f"{place.account}/app",))
        else:
            found = ("u",) if place.name in busy else ()
            lookup = with_runners(lookup, place, busy=found, moved_on=())
    return lookup


def code_of(lookup: Lookup) -> Left | None:
    left = judge(lookup, LEAK)
    assert left is None or isinstance(left.code, Left)
    return None if left is None else left.code


def test_a_runner_is_absent_only_when_everything_was_read() -> None:
    lookup = a_lookup(ACME, MONA)
    while not ended(lookup):
        assert code_of(lookup) is Left.LOOKUP_UNFINISHED
        place = lookup.todo[0]
        if place.scope:
            lookup = with_runners(lookup, place, busy=(), moved_on=())
        else:
            lookup = with_repositories(lookup, place, (f"{place.account}/app",))
    assert judge(lookup, LEAK) is None and lookup.read == 3
    reason = proven(lookup, LEAK).event.reason
    assert reason.code is Why.OWNER_UNKNOWN and reason.fields == {"owner": "gone", "scopes": 3}


@pytest.mark.parametrize(
    ("lookup", "code"),
    [
        pytest.param(a_lookup(), Left.NO_SCOPE_KNOWN, id="no installation, no row"),
        pytest.param(
            finish(a_lookup(ACME), failing=("orgs/acme",)), Left.SCOPE_UNREADABLE, id="a scope"
        ),
        pytest.param(
            finish(a_lookup(ACME, MONA), failing=("the repositories of mona",)),
            Left.SCOPE_UNREADABLE,
            id="a list of repositories",
        ),
        pytest.param(
            finish(a_lookup(ACME), busy=("repos/acme/app",)), Left.RUNNER_BUSY, id="a busy runner"
        ),
        pytest.param(
            finish(a_lookup(ACME), busy=("orgs/acme",), failing=("repos/acme/app",)),
            Left.RUNNER_BUSY,
            id="a busy runner, and a scope that is unread",
        ),
    ],
)
def test_a_pod_whose_runner_may_be_busy_stays(lookup: Lookup, code: Left) -> None:
    assert ended(lookup) and code_of(lookup) is code


def test_an_installation_without_repositories_proves_nothing() -> None:
    lookup = a_lookup(MONA)
    lookup = with_repositories(lookup, lookup.todo[0], ())
    assert ended(lookup) and code_of(lookup) is Left.NO_SCOPE_KNOWN


def test_a_scope_is_read_once_and_by_the_current_installation() -> None:
    old = Place(account="Acme", installation_id=9, scope="orgs/Acme")
    lost = Place(account="gone", installation_id=7, scope="repos/gone/app")
    lookup = a_lookup(ACME, known=(old, lost))
    scopes = {place.name: place.installation_id for place in lookup.todo}
    assert scopes == {"orgs/acme": 1, "repos/gone/app": 7, "the repositories of acme": 1}
    known = Place(account="acme", installation_id=9, scope="repos/acme/App")
    lookup = a_lookup(ACME, known=(known,))
    place = next(each for each in lookup.todo if not each.scope)
    lookup = with_repositories(lookup, place, ("acme/app", "acme/lib"))
    assert [each.name for each in lookup.todo] == ["orgs/acme", "repos/acme/App", "repos/acme/lib"]
    assert {each.installation_id for each in lookup.todo} == {1}


ORG_RUNNERS = frozenset({"actions", "organization_self_hosted_runners"})
REPO_RUNNERS = frozenset({"actions", "administration"})


@pytest.mark.parametrize(
    ("permissions", "names"),
    [
        pytest.param(ORG_RUNNERS, {"orgs/acme"}, id="only at the organisation"),
        pytest.param(
            REPO_RUNNERS, {"the repositories of acme", "repos/acme/old"}, id="only at repositories"
        ),
        pytest.param(frozenset({"actions"}), set(), id="nowhere"),
        pytest.param(
            frozenset(),
            {"orgs/acme", "the repositories of acme", "repos/acme/old"},
            id="not said, so everywhere",
        ),
    ],
)
def test_a_scope_is_not_read_without_the_permission_to_have_runners_there(
    permissions: frozenset[str], names: set[str]
) -> None:
    account = msgspec.structs.replace(ACME, permissions=permissions)
    at = Place(account="acme", installation_id=1)
    known = tuple(
        msgspec.structs.replace(at, scope=scope) for scope in ("orgs/acme", "repos/acme/old")
    )
    lookup = a_lookup(account, known=known)
    assert {place.name for place in lookup.todo} == names
    used = tuple(msgspec.structs.replace(place, used=True) for place in known)
    scopes = {place.name for place in a_lookup(account, known=used).todo if place.scope}
    assert scopes == {"orgs/acme", "repos/acme/old"}, "but where slots were, it is read"


@pytest.mark.parametrize("used", [False, True], ids=["of a tenant", "of a slot"])
def test_the_scopes_of_a_renamed_account_are_read_under_its_new_name(used: bool) -> None:
    known = tuple(
        Place(account="acme-old", installation_id=1, scope=scope, used=used)
        for scope in ("orgs/acme-old", "repos/acme-old/app")
    )
    lookup = a_lookup(ACME, known=known)
    assert {(place.name, place.installation_id) for place in lookup.todo} == {
        ("the repositories of acme", 1),
        ("orgs/acme", 1),
        ("repos/acme/app", 1),
    }


GONE = Place(account="gone", installation_id=7, scope="orgs/gone")
AT_GONE = (GONE, msgspec.structs.replace(GONE, scope="repos/gone/app"))


def asked(lookup: Lookup, account: Account | None) -> Lookup:
    """Record what GitHub says of the installation of an unlisted place."""
    return with_installation(lookup, next(each for each in lookup.todo if each.unlisted), account)


def test_an_account_without_an_installation_does_not_block_the_proof() -> None:
    lookup = asked(a_lookup(ACME, known=AT_GONE), None)
    assert not [each for each in lookup.todo if each.account == "gone"]
    assert judge(finish(lookup), LEAK) is None


def test_an_account_that_github_does_not_list_blocks_while_nothing_definite_is_known() -> None:
    lookup = a_lookup(ACME, known=(GONE,))
    assert code_of(finish(lookup, failing=("orgs/gone",))) is Left.SCOPE_UNREADABLE
    alone = asked(a_lookup(known=AT_GONE), None)
    assert code_of(alone) is Left.NO_SCOPE_KNOWN, "nothing was read at all"


def test_an_installation_that_the_list_missed_is_read_as_if_listed() -> None:
    now = Account(login="renamed", installation_id=7, organisation=True)
    lookup = asked(a_lookup(ACME, known=AT_GONE), now)
    assert {each.name for each in lookup.todo if each.installation_id == 7} == {
        "orgs/renamed",
        "repos/renamed/app",
        "the repositories of renamed",
    }
    assert not any(each.unlisted for each in lookup.todo)
    assert code_of(finish(lookup, failing=("orgs/renamed",))) is Left.SCOPE_UNREADABLE


def test_a_place_with_an_open_slot_blocks_although_its_account_has_no_installation() -> None:
    still = msgspec.structs.replace(AT_GONE[1], used=True, open=True)
    lookup = asked(a_lookup(ACME, known=(GONE, still)), None)
    assert [each.name for each in lookup.todo if each.account == "gone"] == ["repos/gone/app"]
    assert code_of(finish(lookup, failing=("repos/gone/app",))) is Left.SCOPE_UNREADABLE


def not_selected(*, name: str = "gone", not_shown: bool = True, **changes: bool) -> Lookup:
    """A complete lookup, in which a repository of our rows is not read; the installation has mona/app only."""
    known = Place(account="mona", installation_id=2, scope=f"repos/mona/{name}")
    lookup = a_lookup(MONA, known=(known, msgspec.structs.replace(known, **changes)))
    while not ended(lookup):
        place = lookup.todo[0]
        if not place.scope:
            lookup = with_repositories(lookup, place, ("mona/App",))
        elif place.key == known.key:
            lookup = with_failure(lookup, place, "no", not_shown=not_shown)
        else:
            lookup = with_runners(lookup, place, busy=(), moved_on=())
    return lookup


def test_a_repository_does_not_count_only_if_it_is_neither_shown_nor_listed_nor_in_use() -> None:
    assert judge(not_selected(), LEAK) is None
    assert code_of(not_selected(name="app")) is Left.SCOPE_UNREADABLE, "it is listed"
    assert code_of(not_selected(not_shown=False)) is Left.SCOPE_UNREADABLE, "an error"
    assert code_of(not_selected(used=True, open=True)) is Left.SCOPE_UNREADABLE, "a slot is open"
    assert judge(not_selected(used=True), LEAK) is None, "the slots there are closed"


def test_a_repository_that_is_not_shown_blocks_while_the_list_was_not_read() -> None:
    known = Place(account="mona", installation_id=2, scope="repos/mona/gone")
    lookup = a_lookup(MONA, known=(known,))
    for place in lookup.todo:
        lookup = with_failure(lookup, place, "suspended", not_shown=True)
    assert code_of(lookup) is Left.SCOPE_UNREADABLE


def test_a_lookup_that_fails_again_ends_where_it_failed_before() -> None:
    many = tuple(
        Place(account="acme", installation_id=1, scope=f"repos/acme/r{n}") for n in range(50)
    )
    first = finish(a_lookup(ACME, known=many), failing=("repos/acme/r7", "repos/acme/r8"))
    assert first.todo == () and first.read == 50
    again = a_lookup(ACME, known=many, before=first)
    still = finish(again, failing=("repos/acme/r7",))
    assert code_of(still) is Left.SCOPE_UNREADABLE and still.read == 1
    assert judge(finish(again), LEAK) is None, "and continues to the end otherwise"


def test_a_pod_that_has_changed_is_no_longer_looked_up() -> None:
    for changed in (a_leak(generation=3), a_leak(owner="acme"), a_leak("other")):
        lookup = only_these(finish(a_lookup(ACME)), (changed,))
        assert lookup.pods == () and code_of(lookup) is Left.OWNER_UNKNOWN
    older = msgspec.structs.replace(LEAK, age=460.0)
    assert judge(only_these(finish(a_lookup(ACME)), (older,)), LEAK) is None


def test_the_reason_names_the_scopes_that_were_not_read() -> None:
    many = tuple(
        Place(account="acme", installation_id=1, scope=f"repos/acme/r{n}") for n in range(5)
    )
    left = judge(finish(a_lookup(known=many), failing=tuple(each.name for each in many)), LEAK)
    assert left is not None
    shown = "repos/acme/r0, repos/acme/r1, repos/acme/r2 and 2 more"
    assert left.fields == {"scope": shown, "message": "404"}
