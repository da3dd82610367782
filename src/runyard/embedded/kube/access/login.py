"""Authenticates callers of a core behind a socket: administrators, ServiceAccounts, and hosts with a certificate.

    bearer token of an administrator     a secret that the process is configured with
    bearer token of a ServiceAccount     issued by this API, for this API's own audience
    client certificate                   CN is the user, O are the groups, as the HTTP server read them from
                                         the TLS peer; only if enabled
    no credential                        may read the version and whether the server is healthy

An invalid credential is refused, also where none would have been accepted: a client with a stale token
must notice. A token for another audience is invalid here, so a guest cannot use its token for the dispatch
server on this API.

What an authenticated caller may do is decided by `auth.Authorize`.
"""

import hmac
from collections.abc import Iterable
from hashlib import sha256

from runyard.embedded.kube.access.auth import Authenticate, User, bearer
from runyard.embedded.kube.access.tokens import ISSUER, Tokens
from runyard.embedded.kube.status import unauthorized
from runyard.http.intake import Admit
from runyard.http.messages import Request, Response
from runyard.http.server import CLIENT_CERT_CN, CLIENT_CERT_O

OPEN_PATHS = ("/version", "/healthz", "/livez", "/readyz")
ADMIN_NAME = "runyard-admin"
_MIN_TOKEN_LENGTH = 16

_AUTHENTICATED = "system:authenticated"
ANONYMOUS = User(name="system:anonymous", groups=("system:unauthenticated",))
ADMINISTRATOR = User(name=ADMIN_NAME, groups=("system:masters", _AUTHENTICATED))


def authenticator(
    admin_tokens: Iterable[str], tokens: Tokens, *, certificates: bool = False
) -> Authenticate:
    """Returns the authentication for `KubeCore.guard`. Raises `ValueError` on an invalid token."""
    admins = tuple(_digest(token) for token in admin_tokens if _check_token(token))

    def authenticate(request: Request) -> User | None:
        if request.header("authorization"):
            return _by_token(bearer(request), admins=admins, tokens=tokens)
        if certificates and (name := request.header(CLIENT_CERT_CN)):
            groups = (value for key, value in request.headers if key == CLIENT_CERT_O)
            return User(name=name, groups=(*groups, _AUTHENTICATED))
        return ANONYMOUS if _is_open(request) else None

    return authenticate


def only_known(authenticate: Authenticate) -> Admit:
    """Whether a caller may send a large body: only authenticated ones; others are refused before it is read."""

    def admit(head: Request) -> Response | None:
        return unauthorized().response() if authenticate(head) in (None, ANONYMOUS) else None

    return admit


def _by_token(token: str, *, admins: tuple[bytes, ...], tokens: Tokens) -> User | None:
    given = _digest(token)
    matches = [
        hmac.compare_digest(given, known) for known in admins
    ]  # all of them, in constant time
    if any(matches):
        return ADMINISTRATOR
    try:
        return tokens.verify(token, (ISSUER,)).user
    except ValueError:
        return None


def _is_open(request: Request) -> bool:
    return request.method in ("GET", "HEAD") and request.path.rstrip("/") in OPEN_PATHS


def _digest(token: str) -> bytes:
    """Of equal length for all, so that a comparison does not reveal a secret's length."""
    return sha256(token.encode(errors="surrogateescape")).digest()


def _check_token(token: str) -> bool:
    if len(token) < _MIN_TOKEN_LENGTH or token != token.strip() or not token.isprintable():
        raise ValueError(
            f"an administrator's token needs at least {_MIN_TOKEN_LENGTH} characters and no white space around it"
        )
    return True
