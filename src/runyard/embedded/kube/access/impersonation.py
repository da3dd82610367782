"""`kubectl --as`: somebody acts as somebody else, if they may.

Each part of the other identity needs the verb `impersonate` on it: on the user, or on the ServiceAccount that the
user is, on every group and on every value of `extra`.
"""

from collections.abc import Callable

from runyard.embedded.kube.access.auth import AUTHENTICATED, Action, User
from runyard.embedded.kube.access.rbac import ACCOUNT
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

Check = Callable[[User, Action], None]


def impersonated(user: User, request: Request, check: Check) -> User:
    """Whom the request acts as; raises 403 if it may not, 400 if it names no user."""
    told = [(key, value) for key, value in request.headers if key.startswith("impersonate-")]
    if not told:
        return user
    name = next((value for key, value in told if key == _USER), "")
    groups = tuple(value for key, value in told if key == _GROUP)
    uid = next((value for key, value in told if key == _UID), "")
    extra = tuple((key[len(_EXTRA) :], value) for key, value in told if key.startswith(_EXTRA))
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
    namespace, colon, account = name.removeprefix(ACCOUNT).partition(":")
    return (namespace, account) if name.startswith(ACCOUNT) and colon else None


def _of_name(name: str) -> Action:
    if (found := _account(name)) is not None:
        namespace, account = found
        return Action(verb=_VERB, plural="serviceaccounts", namespace=namespace, name=account)
    return Action(verb=_VERB, plural="users", name=name)


def _completed(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    if not groups and (found := _account(name)) is not None:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{found[0]}")
    added = () if AUTHENTICATED in groups or name == "system:anonymous" else (AUTHENTICATED,)
    return (*groups, *added)
