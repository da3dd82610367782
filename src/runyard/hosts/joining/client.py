"""Calls the main machine from a host: the transport, the renewal of the credential, and errors for people.

Invariant: the main machine is trusted by its own authority alone, under the fixed name of the listener for hosts.
"""

import enum
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from runyard.http.client import HttpTransport
from runyard.http.errors import NotSent, TransportError
from runyard.http.messages import Request, Response
from runyard.http.problems import Problem
from runyard.kube.config import Cluster
from runyard.kube.connect import client_tls
from runyard.wire.joining import RENEW, TLS_NAME, Credential

T = TypeVar("T")
_WITHIN = 30.0
CLOCK_FIX = (
    "Set the clock of this machine (macOS: sudo sntp -sS time.apple.com; Linux: sudo timedatectl set-ntp true)."
    " If it is right, set that of the main machine, and restart 'runyard up' there"
)
_NEW_TOKEN = "get another token on the main machine: runyard host token"


class JoinFailed(Exception):
    """The machine has not joined, or has no new credential: a code, the cause and the fix."""

    def __init__(self, code: str, cause: str, fix: str) -> None:
        super().__init__(f"{cause.rstrip('.')}. {fix.rstrip('.')} ({code})")
        self.code = code


def base_url(text: str) -> str:
    """`https://HOST:PORT` of what a person typed; raises `JoinFailed`."""
    url = text if "://" in text else f"https://{text}"
    fix = "Use the URL that 'runyard host token' printed, https://HOST:PORT"
    try:
        parts = urlsplit(url)
        secret = "@" in parts.netloc
        port = None if secret else parts.port
    except ValueError:
        raise JoinFailed("url-invalid", f"{text!r} is not a URL", fix) from None
    if secret:
        cause = "the URL contains a user name or a password, which no main machine asks for"
        raise JoinFailed("url-invalid", cause, fix)
    rest = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme != "https" or not parts.hostname or not port or rest:
        raise JoinFailed("url-invalid", f"{text!r} is not https://HOST:PORT", fix)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"https://{host}:{port}"


async def renew(url: str, authority: str, credential: str) -> Credential:
    """A newer credential for the present one; raises `JoinFailed`."""
    request = Request(
        method="POST", path=RENEW, headers=(("authorization", f"Bearer {credential}"),)
    )
    answer = await trusted(url, authority, request)
    if answer.status != 200:
        raise refused(answer, url)
    return answered(answer, Credential, url)


def transport_to(url: str, authority: str, *, pool: int = 100) -> HttpTransport:
    """A transport to the main machine, which trusts its authority alone."""
    cluster = Cluster(server=url, authority=authority, tls_server_name=TLS_NAME)
    return HttpTransport(url, tls=client_tls(cluster), pool=pool)


def address_towards(url: str) -> str:
    """The address of this machine on the way to the main machine; loopback if there is no way now."""
    parts = urlsplit(url)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM)
        family, _, _, _, address = found[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            return str(ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]))
    except (OSError, ValueError):
        return "127.0.0.1"


async def trusted(url: str, authority: str, request: Request) -> Response:
    """Send a request to the main machine, which must have a certificate of this authority."""
    return await sent(transport_to(url, authority, pool=1), request, url)


async def sent(transport: HttpTransport, request: Request, url: str) -> Response:
    """Send a request and close the transport; every failure becomes a `JoinFailed`."""
    try:
        answer = await transport.send(request, timeout=_WITHIN)
    except NotSent as error:
        raise _not_reached(url, error) from error
    except TransportError as error:
        cause = f"{url} did not answer: {_plain(error, 'the connection was cut')}"
        fix = f"Try again; if the token was used up, {_NEW_TOKEN}"
        raise JoinFailed("outcome-unknown", cause, fix) from error
    finally:
        await transport.close()
    if not isinstance(answer, Response):
        await answer.aclose()
        raise JoinFailed("not-a-control-plane", f"{url} takes no hosts", "Check the URL")
    return answer


class BadDates(enum.Enum):
    """Why a certificate is not valid now, by the clock of this machine; the values are OpenSSL's."""

    NOT_YET_VALID = 9
    EXPIRED = 10


def bad_dates(error: BaseException) -> BadDates | None:
    """What is wrong with the dates of the certificate that a connection failed for."""
    codes = [each.verify_code for each in _certificate_errors(error)]
    return next((each for each in BadDates if each.value in codes), None)


def _certificate_errors(error: BaseException) -> list[ssl.SSLCertVerificationError]:
    # aiohttp's own has no code; the one below it has.
    return [
        each
        for each in _causes(error)
        if isinstance(each, ssl.SSLCertVerificationError) and hasattr(each, "verify_code")
    ]


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def _not_reached(url: str, error: NotSent) -> JoinFailed:
    dates = bad_dates(error)
    if dates is not None:
        words = "is not valid yet" if dates is BadDates.NOT_YET_VALID else "has expired"
        cause = f"the certificate of {url} {words} by the clock of this machine"
        return JoinFailed("clock-wrong", cause, CLOCK_FIX)
    fix = "Check that 'runyard up --listen' runs there and that no firewall is in between"
    if _certificate_errors(error):
        fix = "Use the URL that 'runyard host token' printed: another machine answers at this one"
    why = _plain(error, "the connection failed")
    return JoinFailed("not-reached", f"{url} cannot be reached: {why}", fix)


def _plain(error: BaseException, otherwise: str) -> str:
    """Why there is no answer, without the words of the libraries in between."""
    causes = list(_causes(error))
    kinds = (
        (socket.gaierror, "its name cannot be resolved"),
        (ssl.SSLCertVerificationError, "what answers there has a certificate of another authority"),
        (ssl.SSLError, "what answers there does not speak TLS"),
    )
    for kind, words in kinds:
        if any(isinstance(each, kind) for each in causes):
            return words
    for each in causes:
        if isinstance(each, OSError) and each.errno:
            return os.strerror(each.errno).lower()
    return otherwise if error.__cause__ is not None else f"no answer within {_WITHIN:g} s"


def refused(answer: Response, url: str) -> JoinFailed:
    """The error for a refusal, with the reason code of the main machine."""
    try:
        found = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        found = Problem(error=f"{url} responded with {answer.status}", code="unexpected-response")
    return JoinFailed(found.code or str(answer.status), found.error, found.fix or "Try again")


def answered(answer: Response, kind: type[T], url: str) -> T:
    """The body of a response."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.MsgspecError:
        fix = "Use the same version of runyard on both machines"
        raise JoinFailed("unexpected-response", f"{url} answers otherwise", fix) from None
