"""Requests a login link for the dashboard of this machine, for `runyard up` to print."""

import msgspec

from runyard.embedded.up.machine import Machine
from runyard.embedded.up.token_files import read_token
from runyard.http.client import HttpTransport
from runyard.http.errors import TransportError
from runyard.http.messages import Request, Response
from runyard.wire.login import LOGIN_LINKS, LoginLink

_WITHIN = 10.0


async def login_url(machine: Machine) -> str:
    """A link that logs one browser in, once; empty if the server has just died."""
    token = read_token(machine.layout.dashboard_token)
    headers = (("authorization", f"Bearer {token}"),)
    transport = HttpTransport(machine.urls.server, pool=1)
    try:
        request = Request(method="POST", path=LOGIN_LINKS, headers=headers)
        answer = await transport.send(request, timeout=_WITHIN)
    except TransportError:
        return ""
    finally:
        await transport.close()
    if not isinstance(answer, Response) or answer.status != 201:
        return ""
    return machine.urls.server + msgspec.json.decode(answer.body, type=LoginLink).path
