"""Runs `runyard host` on the main machine: tokens, and the list of hosts.

The commands use the Kubernetes API with the administrator's kubeconfig in the data directory, or the one of
`--kubeconfig`. A refusal is one line with its fix.
"""

import asyncio
import contextlib
import ipaddress
import random
import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from runyard.cli.cluster import cluster
from runyard.cli.local_machine import Unreachable, machine_root
from runyard.cli.options import BadSetting, Failed
from runyard.cli.tables import moment, show_json, show_table
from runyard.clock import Clock, RealClock
from runyard.embedded.lock import is_owned
from runyard.embedded.up.layout import BadDirectory, Layout, read_json
from runyard.hosts.joining import inventory
from runyard.hosts.joining.inventory import HostOfMain, HostView, Load, UnknownHost
from runyard.hosts.joining.tokens import JoinTokens
from runyard.http.errors import TransportError
from runyard.http.tls import TlsError, only_certificate, public_key_hash
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.wire.joining import TOKEN_ID, is_host_name, is_reserved_name

T = TypeVar("T")
_HOST_PORT = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_LIST = "Show the hosts with 'runyard host list'"
_COLUMNS = ("name", "ready", "driver", "version", "slots", "heartbeat", "notes")


class Main(NamedTuple):
    """The main machine, or the cluster."""

    data: Path | None
    kubeconfig: str


# ── tokens ──────────────────────────────────────────────────────────────────────────────────────────


def make_token(data: Path | None, *, ttl: float, name: str, address: str, as_json: bool) -> None:
    """Make a token and print the command for the other machine."""
    if name and not is_host_name(name):
        raise BadSetting(
            f"--name: {name!r} cannot be a host's name. Use at most 40 lower-case letters, digits and '-'"
        )
    if is_reserved_name(name):
        raise BadSetting(
            f"--name: {name} is a name of the main machine's own hosts. Use another one"
        )
    host, port = _address(address) if address else ("", None)
    root = machine_root(data)
    url, layout = _joins_at(root, host, port), Layout(root)
    try:
        pin = public_key_hash(only_certificate((layout.tls / "ca.crt").read_bytes()))
    except TlsError as error:
        raise Failed(f"{layout.tls / 'ca.crt'} cannot be used: {error.cause}. Restore it") from None
    now = RealClock().now()

    async def make(kube: Kube, clock: Clock) -> str:
        rng = random.SystemRandom()
        made = JoinTokens(kube).create(pin, now=now, seconds=ttl, rng=rng, name=name)
        return (await made).text

    text = _with_kube(Main(data, ""), make)
    line = f"runyard host join {shlex.quote(url)} {text}" + (f" --name {name}" if name else "")
    expires = moment(now + ttl)
    if as_json:
        show_json({"command": line, "url": url, "token": text, "expires": now + ttl, "name": name})
        return
    click.echo(line)
    click.echo(f"# on the other machine, once, until {expires} UTC", err=True)


def list_tokens(data: Path | None, *, as_json: bool) -> None:
    """Print the tokens."""
    now = RealClock().now()
    found = _with_kube(Main(data, ""), lambda kube, _: JoinTokens(kube).all())
    shown = [
        {
            "id": each.id,
            "state": each.state(now),
            "expires": each.expires,
            "name": each.name,
            "used_by": each.used_by,
        }
        for each in found
    ]
    if as_json:
        show_json({"items": shown})
        return
    rows = [
        (each.id, each.state(now), moment(each.expires), each.name or "-", each.used_by or "-")
        for each in found
    ]
    show_table(("id", "state", "expires", "for", "used by"), rows)


def revoke_token(data: Path | None, id_: str, *, as_json: bool) -> None:
    """Revoke a token; one that is gone is revoked."""
    if not TOKEN_ID.fullmatch(id_):
        raise BadSetting(
            f"--revoke: {id_!r} is not the id of a token: ten characters, as in 'runyard host token --list'"
        )
    found = _with_kube(Main(data, ""), lambda kube, _: JoinTokens(kube).revoke(id_))
    text = f"token {id_} is revoked" if found else f"there is no token {id_}; nothing to do"
    _say(text, as_json=as_json, event="revoked", id=id_, changed=found)


def _address(text: str) -> tuple[str, int | None]:
    """The host, as a URL has it, and the port of `--address`, if there is one."""
    bad = BadSetting(
        f"--address: {text!r} is no address. Write HOST or HOST:PORT: a name, 192.0.2.7, or [2001:db8::7]:7444"
    )
    with contextlib.suppress(ValueError):
        return f"[{ipaddress.IPv6Address(text)}]", None
    found = _HOST_PORT.fullmatch(text)
    if found is None or (found["port"] and not 0 < int(found["port"]) < 65536):
        raise bad
    try:
        if found["six"]:
            ipaddress.IPv6Address(found["six"])
        elif found["name"].replace(".", "").isdigit():
            ipaddress.IPv4Address(found["name"])
    except ValueError:
        raise bad from None
    host = f"[{found['six']}]" if found["six"] else found["name"]
    return host, int(found["port"]) if found["port"] else None


def _joins_at(root: Path, host: str, port: int | None) -> str:
    """The URL for other machines, with another host and another port if they are given."""
    try:
        urls = read_json(Layout(root).urls, fix="Restart 'runyard up'")
    except BadDirectory as error:
        raise Unreachable(str(error)) from error
    url = urls.get("hosts") if isinstance(urls, dict) else None
    if not isinstance(url, str):
        raise Unreachable(
            f"the machine in {root} takes no hosts. Restart it with 'runyard up --listen HOST:PORT'"
        )
    return f"https://{host}:{port or urlsplit(url).port}" if host else url


# ── hosts ───────────────────────────────────────────────────────────────────────────────────────────


def list_hosts(main: Main, *, as_json: bool) -> None:
    """Print the hosts."""
    found = _with_kube(main, lambda kube, _: inventory.hosts(kube))
    if as_json:
        show_json({"items": found})
        return
    now = RealClock().now()
    show_table(_COLUMNS, [_row(each, now) for each in found])


def drain(main: Main, name: str, *, within: float, as_json: bool) -> None:
    """Cordon a host, and wait until it is empty."""

    async def work(kube: Kube, clock: Clock) -> Load:
        changed = await inventory.cordon(kube, name, cordoned=True)
        before = "takes no more jobs" if changed else "takes no jobs already"
        _say(f"{name} {before}", as_json=as_json, event="cordoned", name=name, changed=changed)
        left = await inventory.load(kube, name)
        if not within:
            return left
        try:
            async with clock.timeout(within):
                async for left in inventory.emptying(kube, name, clock=clock):
                    _say(
                        f"{name}: {_words(left)}",
                        as_json=as_json,
                        event="left",
                        name=name,
                        pods=left.pods,
                        busy=left.busy,
                    )
        except TimeoutError:
            raise Failed(
                f"{name} still has {_words(left)} after {within:.0f} s. It stays cordoned and they finish:"
                f" wait again with 'runyard host drain {name}'"
            ) from None
        return left

    left = _with_kube(main, work)
    if not left.pods:
        _say(f"{name} is drained", as_json=as_json, event="drained", name=name)


def undrain(main: Main, name: str, *, as_json: bool) -> None:
    """Let a host take jobs again."""
    changed = _with_kube(main, lambda kube, _: inventory.cordon(kube, name, cordoned=False))
    text = f"{name} takes jobs again" if changed else f"{name} takes jobs already"
    _say(text, as_json=as_json, event="undrained", name=name, changed=changed)


def remove(data: Path | None, name: str, *, force: bool, as_json: bool) -> None:
    """Remove a host that joined."""

    async def work(kube: Kube, clock: Clock) -> bool:
        if not await inventory.check_removable(kube, name):
            return False
        left = await inventory.load(kube, name)
        if left.pods and not force:
            raise Failed(
                f"{name} still has {_words(left)}. Drain it first with 'runyard host drain {name}', or use --force"
            )
        return await inventory.remove(kube, name)

    found = _with_kube(Main(data, ""), work)
    text = (
        f"{name} is removed: its credential is revoked. On that machine: runyard host leave"
        if found
        else f"there is no host {name}; nothing to do"
    )
    _say(text, as_json=as_json, event="removed", name=name, changed=found)


def _row(host: HostView, now: float) -> tuple[str, ...]:
    beat = "-" if host.heartbeat is None else f"{max(0.0, now - host.heartbeat):.0f} s ago"
    ready = "yes" if host.ready == "True" else f"{host.ready}: {host.reason}"
    ready = ready if host.seen else "no: never seen"
    notes = ["cordoned"] if host.cordoned else []
    notes += ["joined"] if host.joined else []
    slots = f"{host.used}/{host.slots}"
    return (
        host.name,
        ready,
        host.driver or "-",
        host.version or "-",
        slots,
        beat,
        ", ".join(notes) or "-",
    )


def _words(left: Load) -> str:
    runners = "1 runner" if left.pods == 1 else f"{left.pods} runners"
    return f"{runners}, {left.busy} with a job"


def _say(text: str, *, as_json: bool, event: str, **more: object) -> None:
    click.echo(msgspec.json.encode({"event": event, **more}).decode() if as_json else text)


def _with_kube(main: Main, work: Callable[[Kube, Clock], Awaitable[T]]) -> T:
    """Run `work` with a client of the API; every expected error becomes one line."""
    return asyncio.run(_with_client(main, work))


async def _with_client(main: Main, work: Callable[[Kube, Clock], Awaitable[T]]) -> T:
    clock, path = RealClock(), main.kubeconfig
    if not path:
        root = machine_root(main.data)
        if not is_owned(root):
            raise Unreachable(f"'runyard up' does not run in {root}. Start it, or give --data DIR")
        path = str(Layout(root).kubeconfig)
    transport, _ = cluster(path, clock=clock, agent="runyard")
    try:
        return await work(Kube(transport), clock)
    except UnknownHost as error:
        raise Failed(f"there is no host {error}. {_LIST}") from None
    except HostOfMain as error:
        raise Failed(
            f"{error} did not join, so it cannot be removed: 'runyard up --hosts', 'runyard agent' or a cluster made"
            " it. Stop its agent, then delete its Node with kubectl"
        ) from None
    except KubeError as error:
        raise Failed(f"the Kubernetes API refused it: {error}") from error
    except TransportError as error:
        raise Unreachable(f"the Kubernetes API does not respond: {error}") from error
    finally:
        await transport.close()
