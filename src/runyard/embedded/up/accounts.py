"""The parts' own accounts at the embedded API: made once, their tokens renewed while the machine runs.

Each part speaks with a token of its own, read from a private file, so a log of the API tells who did what, and
taking away one part's rights does not touch the others.
"""

import base64
import contextlib
from pathlib import Path

import msgspec

from runyard.embedded.up.layout import Layout
from runyard.files import write_whole
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists
from runyard.kube.kinds import SERVICE_ACCOUNTS
from runyard.wire import names

TOKEN_SECONDS = 86400
LOOK_EVERY = (
    30.0  # of real time: a machine that slept, or whose clock jumped, has stale tokens at once
)
SERVER_ACCOUNT = "tuist-runners-server"


def account_of(part: str) -> str:
    """The ServiceAccount that a part speaks as."""
    if part == "server":
        return SERVER_ACCOUNT
    return names.CONTROLLER_ACCOUNT if part == "operator" else f"{names.NODE_AGENT}-{part}"


def due(layout: Layout, parts: tuple[str, ...], *, now: float) -> tuple[str, ...]:
    """The parts whose token has less than half of its life left, or cannot be read."""
    return tuple(part for part in parts if _expiry(layout.token(part)) - now < TOKEN_SECONDS / 2)


def _expiry(path: Path) -> float:
    """When the token in that file ends, by its own words; long ago if it has none."""
    try:
        payload = path.read_text(encoding="ascii").split(".")[1]
        padded = payload + "=" * (-len(payload) % 4)
        return float(msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims).exp)
    except (OSError, ValueError, IndexError, msgspec.MsgspecError):
        return float("-inf")


class _Claims(msgspec.Struct):
    exp: float


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
        write_whole(layout.token(part), token)
