"""Decides whether the runner of a Pod is proven absent everywhere at GitHub.

The stamp of such a Pod names an owner that no tenant matches, so there is no scope to fence its runner in: rows were
lost. So the runner's name is looked up in every scope of every installation: those that GitHub lists, and those of our
rows. A person's installation has no runners of its own, only its repositories have.
Where an installation lacks the permission for a kind of scope, no runner can be registered and none be listed: such
scopes are read only if a slot of ours was assigned to them.

Our rows are never deleted, so they may name what is no longer there. An installation keeps its number when its account
is renamed: its scopes are read under the new name. Two kinds of places do not count, because they would block every
proof for ever, unless a slot of ours that is not closed is assigned to them:

- those of an installation that GitHub neither lists nor has: the App was uninstalled there;
- a repository that GitHub does not show, and that the list of its installation's repositories does not have: it was
  deleted, renamed, or is no longer selected. The list has all others, also under a new name.

A suspended installation exists, so its places count and cannot be read.

One lookup is for several Pods and may take several ticks, because a fleet may have hundreds of repositories. It is one
proof all the same: a runner is registered under a Pod's name only for a claim of that Pod, and a claim changes its
slot. So a scope that had no such runner has none later, while the Pod (uid, stamp) and its slot (generation, in one era
of the database) are unchanged. Both are read again before the Pod is retired.

It proves nothing if a scope could not be read, if there was none to read, or if it has not ended. A lookup that failed
is repeated beginning with what made it fail, and ends there if that is unchanged: so it costs few requests.
"""

import msgspec

from runyard.dispatch.plans.stamped import Leak
from runyard.wire.reasons import Reason
from runyard.wire.reasons_dispatch import Left, Why

_SHOWN = 3
_OF_ORGANISATION = "organization_self_hosted_runners"
_OF_REPOSITORY = "administration"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account with an installation of the App, as GitHub lists it."""

    login: str
    installation_id: int
    organisation: bool
    permissions: frozenset[str] = frozenset()  # empty if GitHub named none: then all are assumed

    def permits(self, permission: str) -> bool:
        """Whether the App may have this permission there."""
        return not self.permissions or permission in self.permissions


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be read: the runners of a scope, or the repositories of an installation (`scope` is empty)."""

    account: str
    installation_id: int
    scope: str = ""
    used: bool = False  # a slot was assigned to this scope
    open: bool = False  # one that is not closed
    # GitHub lists no such installation: whether it exists is to be read first.
    unlisted: bool = False

    @property
    def name(self) -> str:
        """How errors and reasons name it."""
        return self.scope or f"the repositories of {self.account}"

    @property
    def key(self) -> str:
        """What identifies it: GitHub's names differ by more than upper and lower case."""
        return self.name.lower()


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """One lookup of the runners of some Pods: what was found, and what is still to be read."""

    era: str  # of the database, when it began
    pods: tuple[Leak, ...]
    todo: tuple[Place, ...] = ()
    keys: frozenset[str] = frozenset()  # of all places, read or not
    failed_before: frozenset[str] = frozenset()  # keys of places that made the lookup before fail
    read: int = 0  # scopes
    busy: tuple[tuple[str, Place], ...] = ()  # the uids of Pods whose runners are busy, and where
    unread: tuple[tuple[Place, str], ...] = ()  # what GitHub did not show, and its error
    lists: frozenset[int] = frozenset()  # installations whose list of repositories was read
    listed: frozenset[str] = frozenset()  # keys of the repositories in these lists


def begin(
    pods: tuple[Leak, ...],
    *,
    era: str,
    accounts: tuple[Account, ...],
    known: tuple[Place, ...],
    before: Lookup | None = None,
) -> Lookup:
    """Begin a lookup in the scopes of these accounts and in the known ones; `before` is the one before it."""
    places = [place for account in accounts for place in _places_of(account)]
    by_id = {account.installation_id: account for account in accounts}
    by_login = {account.login.lower(): account for account in accounts}
    # Of two with one key, the first is kept.
    for place in sorted(known, key=lambda each: not each.open):
        account = by_id.get(place.installation_id) or by_login.get(place.account.lower())
        if account is None:
            places.append(msgspec.structs.replace(place, unlisted=not place.open))
        else:
            places += _known_at(account, place)
    empty = Lookup(era=era, pods=pods, failed_before=_failed(before))
    return _add(empty, places)


def with_installation(lookup: Lookup, place: Place, account: Account | None) -> Lookup:
    """Record whether the installation of an unlisted place exists: without one, none of its places counts."""
    same = [
        each
        for each in lookup.todo
        if each.unlisted and each.installation_id == place.installation_id
    ]
    todo = tuple(each for each in lookup.todo if each not in same)
    if account is None:
        return msgspec.structs.replace(lookup, todo=todo)
    keys = lookup.keys - {each.key for each in same}
    found = [*_places_of(account), *(now for each in same for now in _known_at(account, each))]
    return _add(msgspec.structs.replace(lookup, todo=todo, keys=keys), found)


def with_repositories(lookup: Lookup, place: Place, repositories: tuple[str, ...]) -> Lookup:
    """Record the repositories (owner/name) of an installation: they are to be read too."""
    found = [
        msgspec.structs.replace(place, scope=f"repos/{repository}") for repository in repositories
    ]
    lookup = _add(_done(lookup, place), found)
    return msgspec.structs.replace(
        lookup,
        lists=lookup.lists | {place.installation_id},
        listed=lookup.listed | {each.key for each in found},
    )


def with_runners(
    lookup: Lookup, place: Place, *, busy: tuple[str, ...], moved_on: tuple[str, ...]
) -> Lookup:
    """Record that a scope was read: the runners of these Pods are busy there, all others are absent or deleted."""
    return msgspec.structs.replace(
        _done(lookup, place),
        read=lookup.read + 1,
        busy=(*lookup.busy, *((uid, place) for uid in busy)),
        pods=tuple(leak for leak in lookup.pods if leak.uid not in moved_on),
    )


def with_failure(lookup: Lookup, place: Place, message: str, *, not_shown: bool = False) -> Lookup:
    """Record that a place was not read; `not_shown`: GitHub says that there is none of that name, or hides it."""
    done = _done(lookup, place)
    if not_shown and _gone(lookup, place):
        return done
    return msgspec.structs.replace(done, unread=(*lookup.unread, (place, message)))


def only_these(lookup: Lookup, pods: tuple[Leak, ...]) -> Lookup:
    """Drop the Pods that are not among these any more, or have changed."""
    now = {_identity(leak) for leak in pods}
    kept = tuple(leak for leak in lookup.pods if _identity(leak) in now)
    return msgspec.structs.replace(lookup, pods=kept)


def ended(lookup: Lookup) -> bool:
    """Whether all was read; or nothing can be proven, because what failed before has failed again."""
    if not lookup.todo:
        return True
    if not lookup.failed_before or any(each.key in lookup.failed_before for each in lookup.todo):
        return False
    busy = [uid for uid, _ in lookup.busy]
    return bool(lookup.unread) or all(leak.uid in busy for leak in lookup.pods)


def judge(lookup: Lookup, leak: Leak) -> Reason | None:
    """Why the Pod must stay; None if it has certainly no runner in any scope."""
    if all(each.uid != leak.uid for each in lookup.pods):
        return Left.OWNER_UNKNOWN.because()
    for uid, place in lookup.busy:
        if uid == leak.uid:
            return Left.RUNNER_BUSY.because(scope=place.name)
    if lookup.unread:
        return _unread(lookup)
    if lookup.todo:
        return Left.LOOKUP_UNFINISHED.because(scope=lookup.todo[0].name, left=len(lookup.todo))
    return None if lookup.read else Left.NO_SCOPE_KNOWN.because()


def proven(lookup: Lookup, leak: Leak) -> Leak:
    """The Pod to retire, with the proof as the reason."""
    reason = Why.OWNER_UNKNOWN.because(owner=leak.owner, scopes=lookup.read)
    return msgspec.structs.replace(leak, event=msgspec.structs.replace(leak.event, reason=reason))


def _places_of(account: Account) -> list[Place]:
    """What an installation shows: the runners of its organisation, and its repositories."""
    at = Place(account=account.login, installation_id=account.installation_id)
    found = [at] if account.permits(_OF_REPOSITORY) else []
    if account.organisation and account.permits(_OF_ORGANISATION):
        found.append(msgspec.structs.replace(at, scope=f"orgs/{account.login}"))
    return found


def _known_at(account: Account, place: Place) -> list[Place]:
    """The place of our rows, if it has or can have runners."""
    may = place.used or account.permits(_permission_for(place))
    return [_now(place, account)] if may else []


def _now(place: Place, account: Account) -> Place:
    """The place under the account's present name and installation."""
    kind, _, *rest = place.scope.split("/")
    same = place.account.lower() == account.login.lower()
    return msgspec.structs.replace(
        place,
        account=account.login,
        installation_id=account.installation_id,
        unlisted=False,
        scope=place.scope if same else "/".join((kind, account.login, *rest)),
    )


def _gone(lookup: Lookup, place: Place) -> bool:
    """Whether a repository that is not shown is absent from the list of its installation's repositories."""
    return (
        place.scope.startswith("repos/")
        and not place.open
        and place.installation_id in lookup.lists
        and place.key not in lookup.listed
    )


def _permission_for(place: Place) -> str:
    return _OF_ORGANISATION if place.scope.startswith("orgs/") else _OF_REPOSITORY


def _add(lookup: Lookup, places: list[Place]) -> Lookup:
    """Add places that are new: those that made the lookup before fail first, lists before the scopes in them."""
    new = {place.key: place for place in reversed(places) if place.key not in lookup.keys}
    todo = sorted(
        (*lookup.todo, *new.values()),
        key=lambda each: (each.key not in lookup.failed_before, bool(each.scope), each.key),
    )
    return msgspec.structs.replace(lookup, todo=tuple(todo), keys=lookup.keys | new.keys())


def _done(lookup: Lookup, place: Place) -> Lookup:
    todo = tuple(each for each in lookup.todo if each.key != place.key)
    return msgspec.structs.replace(lookup, todo=todo)


def _failed(lookup: Lookup | None) -> frozenset[str]:
    """The keys of what made a lookup fail, and of the lists of repositories that lead there."""
    if lookup is None:
        return frozenset()
    places = [place for place, _ in lookup.unread] + [place for _, place in lookup.busy]
    lists = [msgspec.structs.replace(place, scope="") for place in places]
    return frozenset(place.key for place in (*places, *lists))


def _unread(lookup: Lookup) -> Reason:
    names = [place.name for place, _ in lookup.unread]
    shown = ", ".join(names[:_SHOWN])
    if len(names) > _SHOWN:
        shown += f" and {len(names) - _SHOWN} more"
    return Left.SCOPE_UNREADABLE.because(scope=shown, message=lookup.unread[0][1])


def _identity(leak: Leak) -> tuple[str, str, int | None]:
    return leak.uid, leak.owner, leak.event.generation
