"""The parts' own accounts at the embedded API: made once, their tokens renewed while the machine runs.

Each part speaks with a token of its own, read from a private file, so a log of the API tells who did what, and
taking away one part's rights does not touch the others.
"""

import contextlib

from runyard.embedded.up.layout import Layout, write_private
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists
from runyard.kube.kinds import SERVICE_ACCOUNTS
from runyard.wire import names

TOKEN_SECONDS = 86400
RENEW_EVERY = 3600.0
SERVER_ACCOUNT = "tuist-runners-server"


def account_of(part: str) -> str:
    """The ServiceAccount that a part speaks as."""
    if part == "server":
        return SERVER_ACCOUNT
    return names.CONTROLLER_ACCOUNT if part == "operator" else f"{names.NODE_AGENT}-{part}"


async def renew(kube: Kube, layout: Layout, parts: tuple[str, ...]) -> None:
    """Give every part a fresh token; makes accounts that are not there yet."""
    for part in parts:
        account = account_of(part)
        body = {"metadata": {"name": account}}
        with contextlib.suppress(AlreadyExists):
            await kube.create(SERVICE_ACCOUNTS, body, namespace=names.CONTROLLER_NAMESPACE)
        token = await kube.create_token(
            account,
            namespace=names.CONTROLLER_NAMESPACE,
            audience="",  # the API's own
            seconds=TOKEN_SECONDS,
        )
        write_private(layout.token(part), token)
