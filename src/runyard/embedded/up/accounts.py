"""The parts' own accounts at the embedded API: made once, their tokens renewed while the machine runs.

Each part speaks with a token of its own, read from a private file, and has the shipped roles, the same as in a
cluster. So a log of the API tells who did what, taking away one part's rights does not touch the others, and a part
that lacks a right fails here as it would there. Roles are written at each start of the machine: what somebody
changed in them lasts until then.
"""

import base64
import contextlib
from pathlib import Path

import msgspec

from runyard.embedded.up.layout import Layout
from runyard.files import write_whole
from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists
from runyard.kube.kinds import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from runyard.wire import names, rights

TOKEN_SECONDS = 86400
LOOK_EVERY = (
    30.0  # of real time: a machine that slept, or whose clock jumped, has stale tokens at once
)
_KINDS = {each.kind: each for each in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)}
_MANAGER = "runyard"


def account_of(part: str) -> str:
    """The ServiceAccount that a part speaks as."""
    if part == rights.SERVER:
        return rights.SERVER_ACCOUNT
    return names.CONTROLLER_ACCOUNT if part == rights.OPERATOR else rights.host_account(part)


async def grant(kube: Kube, parts: tuple[str, ...]) -> None:
    """Give every part its shipped roles; one that is neither server nor operator is a host."""
    holders = {account_of(part): part if part in rights.PARTS else rights.HOST for part in parts}
    for obj in rights.granted(holders):
        kind, meta = _KINDS[obj["kind"]], obj["metadata"]
        await kube.apply(
            kind,
            meta["name"],
            obj,
            manager=_MANAGER,
            namespace=meta.get("namespace", ""),
            force=True,
        )


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
