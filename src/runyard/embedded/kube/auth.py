"""Who asks, and whether they may: two functions that a caller of the core can exchange.

The defaults let everybody be an administrator, which is right for a core that only the process around
it can reach. An adapter that opens a socket gives its own.
"""

from collections.abc import Callable

import msgspec

from runyard.http.messages import Request


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody we know."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What they want to do."""

    verb: str  # get list watch create update patch delete
    group: str
    plural: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


Authenticate = Callable[[Request], User | None]  # None: 401
Authorize = Callable[[User, Action], str]  # why not; empty: allowed

ADMIN = User(name="system:admin", groups=("system:masters", "system:authenticated"))


def everybody_is_admin(request: Request) -> User | None:
    """The default: no questions asked."""
    return ADMIN


def everything_is_allowed(user: User, action: Action) -> str:
    """The default: nothing refused."""
    return ""


def bearer(request: Request) -> str:
    """The bearer token of a request, if it has one."""
    scheme, _, token = request.header("authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
