"""Creates the components' ServiceAccounts at the embedded API and renews their tokens while the machine runs.

Each component uses its own token, read from a private file, and has the shipped roles, the same as in a cluster. So
the API's log shows which component did what, revoking one component's rights does not affect the others, and a
component that lacks a right fails here as it would there. Roles are applied at each start of the machine: manual
changes to them last until then.
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
CHECK_EVERY = 30.0  # of real time: after a sleep or a clock jump tokens are stale at once
_KINDS = {each.kind: each for each in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)}
_MANAGER = "runyard"


def account_of(component: str) -> str:
    """The name of a component's ServiceAccount."""
    if component == rights.SERVER:
        return rights.SERVER_ACCOUNT
    return (
        names.CONTROLLER_ACCOUNT if component == rights.OPERATOR else rights.host_account(component)
    )


async def grant(kube: Kube, components: tuple[str, ...]) -> None:
    """Binds the shipped roles to every component; one that is neither server nor operator is a host."""
    holders = {
        account_of(component): component if component in rights.COMPONENTS else rights.HOST
        for component in components
    }
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


def due(layout: Layout, components: tuple[str, ...], *, now: float) -> tuple[str, ...]:
    """The components whose token has less than half of its lifetime left, or cannot be read."""
    return tuple(
        component
        for component in components
        if _expiry(layout.token(component)) - now < TOKEN_SECONDS / 2
    )


def _expiry(path: Path) -> float:
    """When the token in that file expires, from its claims; long ago if it has none."""
    try:
        payload = path.read_text(encoding="ascii").split(".")[1]
        padded = payload + "=" * (-len(payload) % 4)
        return float(msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims).exp)
    except (OSError, ValueError, IndexError, msgspec.MsgspecError):
        return float("-inf")


class _Claims(msgspec.Struct):
    exp: float


async def renew(kube: Kube, layout: Layout, components: tuple[str, ...]) -> None:
    """Writes a new token for every component; creates missing accounts."""
    for component in components:
        account = account_of(component)
        body = {"metadata": {"name": account}}
        with contextlib.suppress(AlreadyExists):
            await kube.create(SERVICE_ACCOUNTS, body, namespace=names.CONTROLLER_NAMESPACE)
        token = await kube.create_token(
            account,
            namespace=names.CONTROLLER_NAMESPACE,
            audience="",  # the API's own
            seconds=TOKEN_SECONDS,
        )
        write_whole(layout.token(component), token)
