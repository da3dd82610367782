"""The files of a machine that joined: where the main machine is, and the credential for it.

    join/membership.json   the URL, the name, labels and settings of the host; no secret
    join/authority.crt     the certificate authority of the main machine
    join/token             the credential (0600), replaced while the agent runs
    join/kubeconfig        names the other files; for the agent, and for kubectl
    join/machine           the identifier of this machine: with it, it may join again under its name

Invariants:
- The credential is in one file, for its owner alone; it is replaced whole, and its users read it again.
- An authority is used only if its file holds exactly one certificate, with the public key that the token named.
"""

import contextlib
import errno
import os
import random
from pathlib import Path

import msgspec
import yaml

from runyard.files import write_whole
from runyard.http.tls import TlsError, only_certificate, public_key_hash
from runyard.wire.joining import TLS_NAME, Credential, is_machine_id

FOLDER = "join"
_ID_BYTES = 16
_WRITTEN = 64 << 10  # bytes; all files together are smaller


class NotJoined(Exception):
    """This machine has not joined, or its files are damaged; the message has the fix."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """What the main machine gave."""

    url: str
    authority: str  # PEM
    pin: str  # what the token says about the authority
    credential: Credential


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """What a host knows of the main machine, and how it runs its own agent."""

    url: str
    name: str
    fleet: str
    namespace: str
    practice_url: str = ""
    pin: str = ""  # of the authority; empty if an early version wrote this
    labels: str = ""
    driver: str = ""
    runner: str = ""  # directory of the Actions runner for processes, with a real GitHub
    settings: tuple[str, ...] = ()  # further arguments of the agent


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

    @property
    def _given(self) -> tuple[Path, ...]:
        """What joining writes, the credential first."""
        return (self.token, self.kubeconfig, self._authority, self._membership)

    def machine(self, rng: random.Random) -> str:
        """The identifier of this machine; the first call makes it. `rng` must be the system's generator."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.folder / "machine"
        try:
            found = path.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeError):
            found = ""
        if not is_machine_id(found):  # a damaged one would be refused
            found = rng.randbytes(_ID_BYTES).hex()
            write_whole(path, found + "\n")
        return found

    def check_writable(self) -> None:
        """Raise `OSError` if `write` could not store what it will be given."""
        for path in self._given:
            if path.is_dir() and not path.is_symlink():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        draft = self.folder / "draft"
        try:
            write_whole(draft, bytes(_WRITTEN))
        finally:
            draft.unlink(missing_ok=True)

    def write(
        self,
        joined: Joined,
        *,
        labels: str,
        driver: str,
        runner: Path | None = None,
        settings: tuple[str, ...] = (),
    ) -> Membership:
        """Store what the main machine gave; replaces what an earlier one gave."""
        given = joined.credential
        membership = Membership(
            url=joined.url,
            name=given.name,
            fleet=given.fleet,
            namespace=given.namespace,
            practice_url=given.practice_url,
            pin=joined.pin,
            labels=labels,
            driver=driver,
            runner=str(runner or ""),
            settings=settings,
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

    def remove(self) -> bool:
        """Forget the main machine, the credential first; whether there was anything. The identifier stays."""
        found = False
        for path in self._given:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                found = True
        return found

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
        """The authority of the main machine, if it is the one that the token named; raises `NotJoined`."""
        text, pin = _text(self._authority), self.read().pin
        try:
            certificate = only_certificate(text.encode())
            if pin and public_key_hash(certificate) != pin:
                raise TlsError("it is not the one that the token named", "restore it")
        except TlsError as error:
            raise _unusable(self._authority, error.cause) from error
        return certificate.decode("ascii")

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
        raise _unusable(path, str(error)) from error


def _unusable(path: Path, why: str) -> NotJoined:
    return NotJoined(
        f"{path} cannot be used ({why}). Join again with 'runyard host join URL TOKEN'"
    )
