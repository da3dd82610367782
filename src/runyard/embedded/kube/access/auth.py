"""Defines authentication and authorization: two functions that the owner of the core can replace.

By default every caller is an administrator, which is right for a core that only its own process can
reach. An adapter that opens a socket passes its own (`login`), and enables the roles and bindings that the
API itself stores (`access`).
"""

from collections.abc import Callable

import msgspec

from runyard.http.messages import Request

MASTERS = "system:masters"  # may do everything, whatever roles say
AUTHENTICATED = "system:authenticated"


class User(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A requested action: a verb on a resource, or, with a `path`, on a non-resource URL."""

    verb: str  # get list watch create update patch delete deletecollection; a method for a path
    group: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None

    @property
    def resource(self) -> str:
        """As rules name it: `pods`, `pods/status`."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


class Decision(msgspec.Struct, frozen=True):
    """Whether an action is allowed; with the reason if it is, or the evaluation errors if it is not."""

    allowed: bool
    reason: str = ""
    error: str = ""


Authenticate = Callable[[Request], User | None]  # None: 401
Authorize = Callable[[User, Action], Decision]

YES, NO = Decision(True), Decision(False)
ADMIN = User(name="system:admin", groups=(MASTERS, AUTHENTICATED))


def always_admin(request: Request) -> User | None:
    """Authenticates every caller as an administrator; the default."""
    return ADMIN


def always_allow(user: User, action: Action) -> Decision:
    """Allows every action; the default."""
    return YES


def bearer(request: Request) -> str:
    """The bearer token of a request, if it has one."""
    scheme, _, token = request.header("authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
