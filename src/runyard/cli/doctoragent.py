"""Finds the agent of a host on this machine for `runyard doctor`, and asks the main machine about it.

Invariants:
- Nothing is written, renewed or restarted: the main machine gets two requests that read.
- The credential is sent only to a machine with a certificate of the authority that was joined, and it is not printed.
"""

import base64
import shlex
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from runyard.cli.doctorservice import AGENT, AgentService
from runyard.clock import Clock
from runyard.embedded.lock import is_owned
from runyard.hosts.doctor.plans.findings import Facts
from runyard.hosts.doctor.plans.hosting import Agent, Joined, Login, Reach, Service
from runyard.hosts.joining.client import bad_dates, transport_to
from runyard.hosts.services.errors import ServiceError
from runyard.hosts.services.here import manager_here
from runyard.hosts.services.installing import status
from runyard.http.errors import TRANSPORT_ERRORS
from runyard.http.messages import Request, Response, Transport
from runyard.http.skew import SkewTransport
from runyard.wire.joining import HEALTH

if TYPE_CHECKING:
    from runyard.hosts.joining.membership import Membership, MembershipFiles

RECORDS = "records"  # of Pods, one file each
MEMBERSHIP = Path("join", "membership.json")
_TIMEOUT = 5.0
_NODES = "/api/v1/nodes/"
_CHECKED = {"filevault", "no-auto-login", "other-auto-login", "unknown"}  # by checks of their own


def home_of(facts: Facts, environ: Mapping[str, str]) -> Path:
    """The home of the user who runs the fleet; under sudo, HOME may be root's."""
    called = facts.root and facts.uid != 0
    return Path(facts.home if called else environ.get("HOME") or facts.home)


def agent_root(
    given: Path | None, environ: Mapping[str, str], home: Path, services: Sequence[AgentService]
) -> Path:
    """The agent's directory: the given one, that of the environment or of an installed service, or the default."""
    named = given or environ.get("RUNYARD_AGENT_DATA")
    if named:
        return Path(named).absolute()
    usual = default_root(home)
    used = [each.data for each in services]
    return used[0] if used and usual not in used else usual


def default_root(home: Path) -> Path:
    """The directory of an agent that was given none."""
    return home / ".local" / "share" / "runyard-agent"


async def agent_of(
    facts: Facts,
    environ: Mapping[str, str],
    clock: Clock,
    *,
    home: Path,
    services: Sequence[AgentService],
    ask: bool,
) -> Agent | None:
    """The agent with the directory of these facts and, if `ask`, what the main machine responds.

    None if this machine has joined another one, and the packages to read how are missing.
    """
    root = Path(facts.agent_data)
    try:
        running = is_owned(root)
        joined = (root / MEMBERSHIP).exists()
        left = any((root / RECORDS).glob("*.json"))
    except OSError as error:
        return Agent(data=str(root), damaged=f"{root}: {error.strerror}")
    if not joined:
        return Agent(data=str(root), running=running, left=left)
    try:
        from runyard.hosts.joining.membership import MembershipFiles, NotJoined
    except ModuleNotFoundError:
        return None
    files = MembershipFiles(root)
    try:
        membership, authority = files.read(), files.authority()
    except NotJoined as error:
        return Agent(data=str(root), running=running, damaged=str(error))
    found = _known(files, membership, clock)
    if ask:
        found = await _asked(found, files, authority, clock)
    own = next((each for each in services if each.data == root), None)
    service, unmanaged = await _service(own, facts, environ, clock, home)
    return Agent(
        data=str(root), running=running, joined=found, service=service, unmanaged=unmanaged
    )


async def _service(
    own: AgentService | None, facts: Facts, environ: Mapping[str, str], clock: Clock, home: Path
) -> tuple[Service | None, str]:
    """The service of the agent, or why it is not known."""
    if own is None:
        return Service(name=AGENT), ""
    try:
        manager = manager_here(
            environ, platform=facts.platform, home=home, uid=facts.uid, clock=clock
        )
        found = await status(own.name, manager)
    except (ServiceError, OSError) as error:
        return None, str(error)
    restart, _ = manager.commands(own.name)
    if not found.loaded and manager.kind == "launchd":
        restart = f"launchctl bootstrap gui/{facts.uid} {shlex.quote(found.path)}"
    boot = "" if found.at_boot.code in _CHECKED else found.at_boot.command
    return Service(
        name=found.name,
        installed=found.installed,
        log=own.log,
        pid=found.pid,
        last_exit=found.last_exit,
        start=restart,
        boot=boot,
    ), ""


# ── the main machine ────────────────────────────────────────────────────────────────────────────────


class _Claims(msgspec.Struct, frozen=True):
    exp: float | None = None


class _Spec(msgspec.Struct, frozen=True):
    unschedulable: bool = False


class _Node(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


def _known(files: "MembershipFiles", membership: "Membership", clock: Clock) -> Joined:
    """The membership, by its files."""
    token = _token(files)
    return Joined(
        url=membership.url,
        name=membership.name,
        start=_start(files, membership),
        stored=bool(token),
        age=max(0.0, files.age(now=clock.now())) if token else 0.0,
        expires=_expires(token),
    )


def _token(files: "MembershipFiles") -> str:
    from runyard.hosts.joining.membership import NotJoined

    try:
        return files.credential()
    except NotJoined:
        return ""


async def _asked(joined: Joined, files: "MembershipFiles", authority: str, clock: Clock) -> Joined:
    """The same with what the main machine responds."""
    try:
        transport = transport_to(joined.url, authority, pool=1)
    except (OSError, ValueError):
        return msgspec.structs.replace(joined, reach=Reach.OTHER)
    measured = SkewTransport(transport, clock=clock)
    try:
        await _get(measured, HEALTH)
        reached = msgspec.structs.replace(joined, reach=Reach.REACHED, skew=measured.skew)
        if not joined.stored:
            return reached
        node = await _get(measured, _NODES + quote(joined.name, safe=""), _token(files))
        return msgspec.structs.replace(reached, login=_login(node), drained=_drained(node))
    except TRANSPORT_ERRORS as error:
        return msgspec.structs.replace(joined, reach=_unreached(error))
    finally:
        await transport.close()


def _unreached(error: Exception) -> Reach:
    if bad_dates(error) is not None:
        return Reach.UNDATED
    return Reach.OTHER if isinstance(error.__cause__, ssl.SSLError) else Reach.AWAY


async def _get(transport: Transport, path: str, token: str = "") -> Response:
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    answer = await transport.send(
        Request(method="GET", path=path, headers=headers), timeout=_TIMEOUT
    )
    if isinstance(answer, Response):
        return answer
    await answer.aclose()
    return Response(status=answer.status)


def _login(answer: Response) -> Login:
    """By the status alone: a Node that is not there yet, or may not be read, was asked for by a known host."""
    if answer.status == 401:
        return Login.REFUSED
    return Login.ACCEPTED if answer.status in {200, 403, 404} else Login.UNASKED


def _drained(answer: Response) -> bool:
    try:
        return (
            answer.status == 200 and msgspec.json.decode(answer.body, type=_Node).spec.unschedulable
        )
    except msgspec.MsgspecError:
        return False


def _expires(token: str) -> float | None:
    """When a credential ends, as it says itself; nothing is proven by that."""
    try:
        _, claims, _ = token.split(".")
        padded = claims + "=" * (-len(claims) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims).exp
    except (ValueError, msgspec.MsgspecError):
        return None


def _start(files: "MembershipFiles", membership: "Membership") -> str:
    from runyard.cli.hostservice import agent_command

    return shlex.join(agent_command(files.folder.parent, membership))
