"""Serves impersonation (`kubectl --as`): a caller acts as another user, if it is allowed to.

The caller needs the verb `impersonate` on each part of the other identity: on the user or ServiceAccount, on every
group and on every value of `extra`.

A name is a ServiceAccount's only if its namespace and account name are valid; any other name with that prefix is a
plain user's, as in a real server. So a right on the accounts of one namespace cannot be extended by a crafted name.
"""

import re
from collections.abc import Callable
from urllib.parse import unquote

from runyard.embedded.kube.access.auth import AUTHENTICATED, Action, User
from runyard.embedded.kube.access.rbac import ACCOUNT
from runyard.embedded.kube.rules.grammar import label, subdomain
from runyard.embedded.kube.status import bad_request
from runyard.http.messages import Request

_USER, _UID, _GROUP, _EXTRA = (
    "impersonate-user",
    "impersonate-uid",
    "impersonate-group",
    "impersonate-extra-",
)
_VERB = "impersonate"
_AUTHENTICATION = "authentication.k8s.io"
_ANONYMOUS, _UNAUTHENTICATED = "system:anonymous", "system:unauthenticated"
_NOT_ESCAPED = re.compile(r"%(?![0-9A-Fa-f]{2})")

Check = Callable[[User, Action], None]


def impersonated(user: User, request: Request, check: Check) -> User:
    """The user that the request acts as; raises 403 if it may not, 400 if it names no user."""
    given = [(key, value) for key, value in request.headers if key.startswith("impersonate-")]
    if not given:
        return user
    name = next((value for key, value in given if key == _USER), "")
    groups = tuple(value for key, value in given if key == _GROUP)
    uid = next((value for key, value in given if key == _UID), "")
    extra = tuple(
        (_unescaped(key[len(_EXTRA) :]), value) for key, value in given if key.startswith(_EXTRA)
    )
    if not name:
        raise bad_request("requested groups, a uid or extra values without impersonating a user")
    check(user, _of_name(name))
    for group in groups:
        check(user, Action(verb=_VERB, plural="groups", name=group))
    if uid:
        check(user, Action(verb=_VERB, group=_AUTHENTICATION, plural="uids", name=uid))
    for key, value in extra:
        check(
            user,
            Action(
                verb=_VERB,
                group=_AUTHENTICATION,
                plural="userextras",
                subresource=key,
                name=value,
            ),
        )
    return User(name=name, uid=uid, groups=_completed(name, groups), extra=extra)


def _account(name: str) -> tuple[str, str] | None:
    if not name.startswith(ACCOUNT):
        return None
    namespace, _, account = name[len(ACCOUNT) :].partition(":")
    return None if label(namespace) or subdomain(account) else (namespace, account)


def _unescaped(key: str) -> str:
    """Decodes a key from the name of a header."""
    return key if _NOT_ESCAPED.search(key) else unquote(key)


def _of_name(name: str) -> Action:
    if (found := _account(name)) is not None:
        namespace, account = found
        return Action(verb=_VERB, plural="serviceaccounts", namespace=namespace, name=account)
    return Action(verb=_VERB, plural="users", name=name)


def _completed(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    if not groups and (found := _account(name)) is not None:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{found[0]}")
    if name == _ANONYMOUS:
        given, added = _UNAUTHENTICATED in groups, _UNAUTHENTICATED
    else:
        given, added = AUTHENTICATED in groups or _UNAUTHENTICATED in groups, AUTHENTICATED
    return groups if given else (*groups, added)
