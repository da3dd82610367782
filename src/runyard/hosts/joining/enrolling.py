"""Joins a machine: checks who answers at the URL, then exchanges the join token for a credential.

Invariants:
- The secret of the token is sent only over a connection whose certificate was signed by the authority that the token
  pins. The authority itself is fetched first, over a connection that is not trusted, and compared with the pin.
- A request to join is sent once. If its outcome is unknown, the token may be used up, and the error says so.
"""

import msgspec

from runyard.hosts.joining.client import JoinFailed, credential_of, refused, sent, trusted
from runyard.hosts.joining.membership import Joined
from runyard.http.client import HttpTransport
from runyard.http.messages import Request
from runyard.http.tls import TlsError, public_key_hash
from runyard.kube.config import Cluster
from runyard.kube.connect import client_tls
from runyard.wire.joining import AUTHORITY, JOIN, JoinRequest, JoinToken

_LARGEST = 64 << 10


async def join(url: str, token: JoinToken, *, name: str, machine: str) -> Joined:
    """Join under this name; raises `JoinFailed`."""
    authority = await _authority(url, token.pin)
    body = JoinRequest(id=token.id, secret=token.secret, name=name, machine=machine)
    request = Request(
        method="POST",
        path=JOIN,
        headers=(("content-type", "application/json"),),
        body=msgspec.json.encode(body),
    )
    answer = await trusted(url, authority, request)
    if answer.status != 201:
        raise refused(answer, url)
    return Joined(url=url, authority=authority, credential=credential_of(answer, url))


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
        found = public_key_hash(answer.body)
        text = answer.body.decode("ascii")
    except (ValueError, TlsError):
        raise JoinFailed("not-a-control-plane", f"{url} takes no hosts", wrong) from None
    if found != pin:
        cause = f"{url} has another certificate authority than the token names; nothing was sent"
        raise JoinFailed("authority-wrong", cause, wrong)
    return text
