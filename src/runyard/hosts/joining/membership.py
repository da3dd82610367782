"""The files of a machine that joined: where the main machine is, and the credential for it.

    join/membership.json   the URL, the name, labels and settings of the host; no secret
    join/authority.crt     the certificate authority of the main machine
    join/token             the credential (0600), replaced while the agent runs
    join/kubeconfig        names the other files; for the agent, and for kubectl
    join/machine           the identifier of this machine: with it, it may join again under its name

Invariant: the credential is in one file, for its owner alone; it is replaced whole, and its users read it again.
"""

import random
from pathlib import Path

import msgspec
import yaml

from runyard.files import write_whole
from runyard.wire.joining import TLS_NAME, Credential

FOLDER = "join"
_ID_BYTES = 16


class NotJoined(Exception):
    """This machine has not joined, or its files are damaged; the message has the fix."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """What the main machine gave."""

    url: str
    authority: str  # PEM
    credential: Credential


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """What a host knows of the main machine, and how it runs its own agent."""

    url: str
    name: str
    fleet: str
    namespace: str
    practice_url: str = ""
    labels: str = ""
    driver: str = ""


class MembershipFiles:
    """The files in one data directory of an agent."""

    def __init__(self, data: Path) -> None:
        self.folder = data / FOLDER

    @property
    def token(self) -> Path:
        """The credential."""
        return self.folder / "token"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the agent."""
        return self.folder / "kubeconfig"

    @property
    def _authority(self) -> Path:
        return self.folder / "authority.crt"

    @property
    def _membership(self) -> Path:
        return self.folder / "membership.json"

    def machine(self, rng: random.Random) -> str:
        """The identifier of this machine; the first call makes it. `rng` must be the system's generator."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / "machine"
        try:
            found = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            found = ""
        if not found:
            found = rng.randbytes(_ID_BYTES).hex()
            write_whole(path, found + "\n")
        return found

    def write(self, joined: Joined, *, labels: str, driver: str) -> Membership:
        """Store what the main machine gave; replaces what an earlier one gave."""
        given = joined.credential
        membership = Membership(
            url=joined.url,
            name=given.name,
            fleet=given.fleet,
            namespace=given.namespace,
            practice_url=given.practice_url,
            labels=labels,
            driver=driver,
        )
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.write_token(given)
        write_whole(self._authority, joined.authority, mode=0o644)
        write_whole(self.kubeconfig, self._rendered(membership))
        write_whole(self._membership, msgspec.json.encode(membership))
        return membership

    def write_token(self, given: Credential) -> None:
        """Replace the credential."""
        write_whole(self.token, given.token + "\n")

    def read(self) -> Membership:
        """What was stored; raises `NotJoined`."""
        try:
            return msgspec.json.decode(self._membership.read_bytes(), type=Membership)
        except FileNotFoundError:
            cause = f"{self.folder.parent} has joined no machine"
        except (OSError, msgspec.MsgspecError) as error:
            cause = f"{self._membership} cannot be read ({error})"
        raise NotJoined(f"{cause}. Join with 'runyard host join URL TOKEN'")

    def authority(self) -> str:
        """The authority of the main machine; raises `NotJoined`."""
        return _text(self._authority)

    def credential(self) -> str:
        """The present credential; raises `NotJoined`."""
        return _text(self.token).strip()

    def age(self, *, now: float) -> float:
        """Seconds since the credential was written; endless if there is none."""
        try:
            return now - self.token.stat().st_mtime
        except OSError:
            return float("inf")

    def _rendered(self, membership: Membership) -> str:
        cluster = {
            "server": membership.url,
            "certificate-authority": str(self._authority),
            "tls-server-name": TLS_NAME,
        }
        user = {"tokenFile": str(self.token)}
        context = {"cluster": "main", "user": "host", "namespace": membership.namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "main", "cluster": cluster}],
            "users": [{"name": "host", "user": user}],
            "contexts": [{"name": "main", "context": context}],
            "current-context": "main",
        }
        return yaml.safe_dump(config, sort_keys=False)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        raise NotJoined(
            f"{path} cannot be read ({error}). Join again with 'runyard host join URL TOKEN'"
        ) from error
