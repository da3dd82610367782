"""Where one machine keeps its state: a directory, and what lies where in it.

    kubeconfig            for kubectl, and for nobody else (0600)
    tls/                  the machine's own authority, and the API's certificate
    secrets.json          keys and tokens, made once (0600)
    ports.json            the ports that were chosen, so that they stay
    kube.db  github.db    the embedded API and the practice GitHub
    postgres/             the database
    images/               what hosts pull from
    hosts/NAME/           one host: its records and its VMs
    tokens/NAME           the parts' own credentials, renewed while the machine runs (0600)
    logs/NAME.log         one log a process

Everything is private to its owner: the directory has mode 0700. Under root it is 0711: the VMs' own users may pass
through to their folders, and see nothing on the way.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec


class BadDirectory(Exception):
    """The data directory cannot be used; the message says why and what to do."""


class Layout(msgspec.Struct, frozen=True):
    """The paths below one data directory."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        """What kubectl is given."""
        return self.root / "kubeconfig"

    @property
    def secrets(self) -> Path:
        """Keys and tokens."""
        return self.root / "secrets.json"

    @property
    def tls(self) -> Path:
        """The authority and the API's certificate."""
        return self.root / "tls"

    @property
    def ports(self) -> Path:
        """The chosen ports."""
        return self.root / "ports.json"

    @property
    def kube(self) -> Path:
        """The embedded API's journal."""
        return self.root / "kube.db"

    @property
    def github(self) -> Path:
        """The practice GitHub's memory."""
        return self.root / "github.db"

    @property
    def postgres(self) -> Path:
        """The database server's directory."""
        return self.root / "postgres"

    @property
    def images(self) -> Path:
        """Where hosts pull images from."""
        return self.root / "images"

    def host(self, name: str) -> Path:
        """The directory of one host."""
        return self.root / "hosts" / name

    def token(self, part: str) -> Path:
        """The credential of one part."""
        return self.root / "tokens" / part

    def log(self, process: str) -> Path:
        """The log of one process."""
        return self.root / "logs" / f"{process}.log"

    def prepare(self) -> None:
        """Make the directories; raises `BadDirectory`."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._close()
            for folder in ("hosts", "tokens", "logs", "images"):
                (self.root / folder).mkdir(exist_ok=True, mode=0o700)
            if os.geteuid() == 0:
                self.root.chmod(0o711)
                (self.root / "hosts").chmod(0o711)
            write_private(self.root / ".writable", "")
            (self.root / ".writable").unlink()
        except OSError as error:
            raise BadDirectory(
                f"cannot use {self.root} as data directory: {error.strerror}."
                " Choose a directory that you may write, with --data DIR"
            ) from error

    def _close(self) -> None:
        """Keep others out; somebody's own directory, given by mistake, is not touched."""
        if not self.root.stat().st_mode & 0o066:
            return
        if any(self.root.iterdir()) and not self.secrets.exists():
            raise BadDirectory(
                f"{self.root} holds other files and is open to others, so it is not used as data directory."
                " Choose a new or an empty directory, with --data DIR"
            )
        self.root.chmod(0o700)


def default_root(environ: Mapping[str, str]) -> Path:
    """`~/.local/share/runyard`, or where the user keeps such data."""
    home = environ.get("XDG_DATA_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "share"
    return base / "runyard"


def write_private(path: Path, text: str) -> None:
    """Replace a file whole, readable by nobody else; a crash leaves the old one or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)  # a crash may have left one with another mode
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path) -> object:
    """A small JSON file of ours, or None if there is none; raises `BadDirectory` if it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadDirectory(
            f"{path} cannot be read ({error}). Restore it from a backup, or move the data directory away"
            " to begin anew"
        ) from error
