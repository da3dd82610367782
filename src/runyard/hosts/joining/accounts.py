"""The account of a joined host: its rights, its credential, and the end of both.

A host has the ServiceAccount `tart-kubelet-NAME` with the shipped roles, and the API's fence limits that account to its
own Node and Pods. Its credential is a token of this account.

Invariants:
- A name belongs to the machine that joined with it, known by an identifier that the machine made once. Another machine
  is refused until the host was removed. An account that no join made belongs to no machine, and is never joined as.
- A credential is given only of the account that was checked: one that was made anew in between has another uid.
- Joining again makes the account anew: its uid changes, which ends every earlier credential.
- Removing the account ends the credential at once: the API compares the uid with each request.
"""

import base64
import contextlib

import msgspec

from runyard.kube.client import Kube
from runyard.kube.errors import AlreadyExists, NotFound
from runyard.kube.kinds import (
    CLUSTER_ROLE_BINDINGS,
    LEASES,
    NODES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    Kind,
)
from runyard.wire import names, rights
from runyard.wire.joining import MACHINE_ID, is_machine_id
from runyard.wire.manifests import Object

CREDENTIAL_SECONDS = 30 * 86400
_NAMESPACE = names.CONTROLLER_NAMESPACE
_MANAGER = "runyard"
_BINDINGS = {each.kind: each for each in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS)}
_USER = f"system:serviceaccount:{_NAMESPACE}:{rights.host_account('')}"


class NameTaken(Exception):
    """Another machine has this name."""


def host_of(username: str) -> str:
    """The host of an authenticated user; empty if it is none."""
    return username.removeprefix(_USER) if username.startswith(_USER) else ""


class AccountReplaced(Exception):
    """The account was made anew, or removed, before a credential of it was given."""


async def check_name(kube: Kube, name: str, machine: str) -> None:
    """Raise `NameTaken` unless the name is free, or this machine's own."""
    try:
        found = await kube.get(SERVICE_ACCOUNTS, rights.host_account(name), namespace=_NAMESPACE)
    except NotFound:
        return
    owner = found["metadata"].get("annotations", {}).get(MACHINE_ID, "")
    if not is_machine_id(owner) or owner != machine:
        raise NameTaken(name)


async def grant(kube: Kube, name: str, machine: str) -> str:
    """Make the account anew, with its rights; returns its uid."""
    account = rights.host_account(name)
    await check_name(kube, name, machine)
    with contextlib.suppress(NotFound):
        await kube.delete(SERVICE_ACCOUNTS, account, namespace=_NAMESPACE)
    body = {"metadata": {"name": account, "annotations": {MACHINE_ID: machine}}}
    try:
        made = await kube.create(SERVICE_ACCOUNTS, body, namespace=_NAMESPACE)
    except AlreadyExists:
        raise NameTaken(name) from None  # of two machines with one name, the other was faster
    for kind, binding in _bindings(name):
        meta = binding["metadata"]
        await kube.apply(
            kind,
            meta["name"],
            binding,
            manager=_MANAGER,
            namespace=meta.get("namespace", ""),
            force=True,
        )
    return str(made["metadata"]["uid"])


async def credential(kube: Kube, name: str, *, uid: str) -> str:
    """A new token of the account with this uid; raises `AccountReplaced` if that is no longer the account."""
    try:
        token = await kube.create_token(
            rights.host_account(name),
            namespace=_NAMESPACE,
            audience="",  # the API's own
            seconds=CREDENTIAL_SECONDS,
        )
    except NotFound:
        raise AccountReplaced(name) from None
    # A request for a token names no uid, so the token itself is asked whose it is.
    if not uid or claimed(token).uid != uid:
        raise AccountReplaced(name)
    return token


class Claimed(msgspec.Struct, frozen=True):
    """The account that a token claims to be of, without a proof; all empty if it claims none."""

    user: str = ""
    uid: str = ""


def claimed(token: str) -> Claimed:
    """Read the claims of a token; its signature is not verified."""
    parts = token.split(".")
    if len(parts) != 3:
        return Claimed()
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims)
    except (ValueError, msgspec.MsgspecError):
        return Claimed()
    return Claimed(claims.sub, claims.private.serviceaccount.uid)


class _Account(msgspec.Struct, frozen=True):
    uid: str = ""


class _Private(msgspec.Struct, frozen=True):
    serviceaccount: _Account = _Account()


class _Claims(msgspec.Struct, frozen=True):
    sub: str = ""
    private: _Private = msgspec.field(name="kubernetes.io", default=_Private())


async def revoke(kube: Kube, name: str) -> bool:
    """Remove the account and its rights; false if there was none."""
    found = await _deleted(kube, SERVICE_ACCOUNTS, rights.host_account(name), _NAMESPACE)
    for kind, binding in _bindings(name):
        meta = binding["metadata"]
        await _deleted(kube, kind, meta["name"], meta.get("namespace", ""))
    return found


async def forget_node(kube: Kube, name: str) -> bool:
    """Remove the Node and its heartbeat; false if there was none. The API and the operator then remove its Pods."""
    found = await _deleted(kube, NODES, name, "")
    await _deleted(kube, LEASES, name, names.NODE_LEASE_NAMESPACE)
    return found


async def joined(kube: Kube) -> tuple[str, ...]:
    """The names of the hosts that joined."""
    found = await kube.list(SERVICE_ACCOUNTS, namespace=_NAMESPACE)
    prefix = rights.host_account("")
    return tuple(
        sorted(
            each["metadata"]["name"].removeprefix(prefix)
            for each in found.items
            if MACHINE_ID in each["metadata"].get("annotations", {})
        )
    )


def _bindings(name: str) -> tuple[tuple[Kind, Object], ...]:
    bindings = rights.bindings(rights.HOST, rights.host_account(name))
    return tuple((_BINDINGS[each["kind"]], each) for each in bindings)


async def _deleted(kube: Kube, kind: Kind, name: str, namespace: str) -> bool:
    try:
        await kube.delete(kind, name, namespace=namespace)
    except NotFound:
        return False
    return True
