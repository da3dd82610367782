"""Sends one request to GitHub: rate budget, credentials, transport, and the error for its status.

Every request of `client` goes through here, so each one spends budget, updates it from the rate-limit headers, and
distinguishes "certainly not sent" from "maybe carried out".
"""

from typing import TypeVar

import msgspec

from runyard.clock import Clock
from runyard.github import answers, errors
from runyard.github.app import Auth, Token
from runyard.github.budget import APP_KEY, READ_POINTS, WRITE_POINTS, Spending, retry_after
from runyard.github.errors import Exclusion
from runyard.github.scope import Scope
from runyard.http.errors import NotSent, OutcomeUnknown
from runyard.http.messages import Pairs, Request, Response, Stream, Transport
from runyard.wire.instants import from_rfc3339

HEADERS: Pairs = (
    ("accept", "application/vnd.github+json"),
    ("x-github-api-version", "2022-11-28"),
    ("user-agent", "runyard"),
    ("content-type", "application/json"),
)

T = TypeVar("T")


class _Access(msgspec.Struct):
    token: str
    expires_at: str


_access = msgspec.json.Decoder(_Access)


class Calls:
    """Sends requests as the App or as one of its installations."""

    def __init__(
        self,
        transport: Transport,
        *,
        app: Auth,
        clock: Clock,
        budget: Spending,
        timeout: float,
    ) -> None:
        self.last_answer: float | None = None
        self._transport = transport
        self._app = app
        self._clock = clock
        self._budget = budget
        self._timeout = timeout

    @property
    def only(self) -> Scope | None:
        """The one repository that we may act in, if it is only one."""
        return self._app.only

    async def as_installation(
        self,
        scope: Scope,
        method: str,
        path: str,
        *,
        purpose: str,
        query: Pairs = (),
        body: bytes = b"",
        paid: bool = False,
    ) -> Response:
        """Call with the installation's token; after a 401 it is repeated once with a fresh one.

        `paid`: the points of the first request were taken from the budget already.
        """
        self._admit(scope, method, path)
        key = str(scope.installation_id)
        token = await self._token(scope.installation_id)
        response = await self._send(
            method,
            path,
            query=query,
            body=body,
            credential=token,
            key=key,
            purpose=purpose,
            paid=paid,
        )
        if response.status != 401:
            return response
        self._app.forget(scope.installation_id, token)
        fresh = await self._token(scope.installation_id)
        if fresh == token:
            return response
        token = fresh
        return await self._send(
            method, path, query=query, body=body, credential=token, key=key, purpose=purpose
        )

    async def as_app(
        self, method: str, path: str, *, purpose: str, query: Pairs = (), body: bytes = b""
    ) -> Response:
        """Call with the App's JWT; after a 401 it is repeated once with a fresh one."""
        for _ in range(2):
            response = await self._send(
                method,
                path,
                query=query,
                body=body,
                credential=self._app.jwt(),
                key=APP_KEY,
                purpose=purpose,
            )
            if response.status != 401:
                return response
            self._app.forget_jwt()
        raise errors.Unauthorized(f"{method} {path}: the App's JWT is not accepted", status=401)

    def _admit(self, scope: Scope, method: str, path: str) -> None:
        """Raise `NotAllowed` if the token is for another repository."""
        only = self._app.only
        if only is not None and str(scope).lower() != str(only).lower():
            raise errors.NotAllowed(
                f"{method} {path}: the token is for {only} only", scope="account"
            )

    def require(self, response: Response, *, what: str, scope: Scope | None = None) -> None:
        """Raise the error of an unsuccessful response; `scope` is what was addressed."""
        if 200 <= response.status < 300:
            return
        reach: Exclusion = "account"
        if scope is not None and scope.kind == "repos":
            reach = "repository"
        wait = retry_after(response, now=self._clock.now())
        raise answers.failure(response, what=what, scope=reach, retry_after=wait)

    async def _token(self, installation_id: int) -> str:
        try:
            return await self._app.token(installation_id, self._fetch_token)
        except (errors.BudgetExhausted, errors.BudgetUnknown, errors.Unauthorized):
            raise  # they are more specific, and definite too
        except errors.GitHubError as error:
            # The call that needed the token was not made: definite. Only if GitHub refused this
            # installation is the account excluded.
            refused = isinstance(error, errors.NotFound | errors.NotAllowed)
            raise errors.NoToken(
                f"no token for installation {installation_id}: {error}",
                status=error.status,
                scope="account" if refused else "none",
                retry_after=error.retry_after,
            ) from error

    async def _fetch_token(self, installation_id: int) -> Token:
        path = f"/app/installations/{installation_id}/access_tokens"
        what = f"token of installation {installation_id}"
        response = await self.as_app("POST", path, purpose="token")
        self.require(response, what=what)
        access = read(_access, response, what=what)
        try:
            return Token(value=access.token, expires_at=from_rfc3339(access.expires_at))
        except ValueError:
            raise errors.Unreadable(f"{what}: expires_at is not a timestamp") from None

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Pairs,
        body: bytes,
        credential: str,
        key: str,
        purpose: str,
        paid: bool = False,
    ) -> Response:
        points = READ_POINTS if method == "GET" else WRITE_POINTS
        await self._budget.spend(points, purpose=purpose, key=key, taken=paid)
        request = Request(
            method=method,
            path=path,
            query=query,
            headers=(("authorization", f"Bearer {credential}"), *HEADERS),
            body=body,
        )
        response = await send_once(
            self._transport, request, timeout=self._timeout, shown=f"{method} {path}"
        )
        if response.status < 500:
            self.last_answer = self._clock.now()
        await self._budget.record_response(response, key=key)
        return response


async def send_once(
    transport: Transport, request: Request, *, timeout: float, shown: str
) -> Response:
    """Send one request; `shown` names it in errors."""
    try:
        response = await transport.send(request, timeout=timeout)
    except NotSent as error:
        raise errors.Unreachable(f"{shown}: not sent: {error}") from error
    except OutcomeUnknown as error:
        raise errors.NoAnswer(f"{shown}: no answer: {error}") from error
    if isinstance(response, Stream):
        await response.aclose()
        raise errors.Unreadable(f"{shown}: a stream where an answer was expected")
    return response


def read(decoder: msgspec.json.Decoder[T], response: Response, *, what: str) -> T:
    """The body of a success; one that cannot be read leaves the outcome unknown."""
    try:
        return decoder.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Without the decoder's message: it may quote a credential.
        raise errors.Unreadable(
            f"{what}: {response.status} with an unreadable body", status=response.status
        ) from None
