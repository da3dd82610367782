"""Joins a machine: checks who answers at the URL, then exchanges the join token for a credential.

Invariants:
- The secret of the token is sent only over a connection whose certificate was signed by the authority that the token
  pins. The authority itself is fetched first, over a connection that is not trusted, and compared with the pin.
- What is trusted and stored is the one certificate that was compared, and nothing else of what came with it.
- `meet` sends nothing of the token, so its caller can still refuse what it hears without using the token up.
- A request to join is sent once. If its outcome is unknown, the token may be used up, and the error says so.
"""

import msgspec

from runyard.hosts.joining.client import JoinFailed, answered, refused, sent, trusted
from runyard.hosts.joining.membership import Joined
from runyard.http.client import HttpTransport
from runyard.http.messages import Request
from runyard.http.tls import TlsError, only_certificate, public_key_hash
from runyard.kube.config import Cluster
from runyard.kube.connect import client_tls
from runyard.wire.joining import (
    AUTHORITY,
    JOIN,
    TERMS,
    Credential,
    JoinRequest,
    JoinToken,
    Terms,
)

_LARGEST = 64 << 10


class MainMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine at a URL, known by the authority that the token names, and what its hosts must have."""

    url: str
    authority: str  # PEM
    terms: Terms


async def meet(url: str, token: JoinToken) -> MainMachine:
    """Find out who answers, and what it wants of its hosts; raises `JoinFailed`."""
    authority = await _authority(url, token.pin)
    answer = await trusted(url, authority, Request(method="GET", path=TERMS))
    if answer.status == 404:
        cause = f"{url} runs another version of runyard"
        raise JoinFailed("unexpected-response", cause, "Use the same version on both machines")
    if answer.status != 200:
        raise refused(answer, url)
    return MainMachine(url=url, authority=authority, terms=answered(answer, Terms, url))


async def join(main: MainMachine, token: JoinToken, *, name: str, machine: str) -> Joined:
    """Join under this name; raises `JoinFailed`."""
    body = JoinRequest(id=token.id, secret=token.secret, name=name, machine=machine)
    request = Request(
        method="POST",
        path=JOIN,
        headers=(("content-type", "application/json"),),
        body=msgspec.json.encode(body),
    )
    answer = await trusted(main.url, main.authority, request)
    if answer.status != 201:
        raise refused(answer, main.url)
    return Joined(
        url=main.url,
        authority=main.authority,
        pin=token.pin,
        credential=answered(answer, Credential, main.url),
    )


async def _authority(url: str, pin: str) -> str:
    """The authority of the machine at the URL, if it is the one of the token."""
    insecure = client_tls(Cluster(server=url, insecure=True))
    answer = await sent(
        HttpTransport(url, tls=insecure, pool=1), Request(method="GET", path=AUTHORITY), url
    )
    wrong = (
        "Use the URL that 'runyard host token' printed; it is not the dashboard's."
        " If it is the right one, another machine answers in between"
    )
    try:
        if answer.status != 200 or len(answer.body) > _LARGEST:
            raise ValueError("no authority")
        certificate = only_certificate(answer.body)
    except (ValueError, TlsError):
        raise JoinFailed("not-a-control-plane", f"{url} takes no hosts", wrong) from None
    if public_key_hash(certificate) != pin:
        cause = f"{url} has another certificate authority than the token names; nothing was sent"
        raise JoinFailed("authority-wrong", cause, wrong)
    return certificate.decode("ascii")
