"""Who asks, and whether they may: two functions that a caller of the core can exchange.

The defaults let everybody be an administrator, which is right for a core that only the process around
it can reach. An adapter that opens a socket gives its own (`login`), and switches on the roles and bindings
that the API itself holds (`access`).
"""

from collections.abc import Callable

import msgspec

from runyard.http.messages import Request

MASTERS = "system:masters"  # may do everything, whatever roles say
AUTHENTICATED = "system:authenticated"


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody we know."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What they want to do: a verb on a resource, or, with a `path`, on something that is none."""

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
    """Whether they may; a reason for a yes, or what could not be evaluated for a no."""

    allowed: bool
    reason: str = ""
    error: str = ""


Authenticate = Callable[[Request], User | None]  # None: 401
Authorize = Callable[[User, Action], Decision]

YES, NO = Decision(True), Decision(False)
ADMIN = User(name="system:admin", groups=(MASTERS, AUTHENTICATED))


def everybody_is_admin(request: Request) -> User | None:
    """The default: no questions asked."""
    return ADMIN


def everything_is_allowed(user: User, action: Action) -> Decision:
    """The default: nothing refused."""
    return YES


def bearer(request: Request) -> str:
    """The bearer token of a request, if it has one."""
    scheme, _, token = request.header("authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
