"""Where one machine keeps its state: a directory, and what lies where in it.

    kubeconfig            for kubectl, and for nobody else (0600)
    tls/                  the machine's own authority, and the API's certificate
    secrets.json          keys and tokens, made once (0600)
    ports.json            the ports that were chosen, so that they stay
    urls.json             where every part can be reached, for people and scripts
    format                which version of this layout it is
    machine-id            who this machine is, for a database that others can reach too
    kube.db  github.db    the embedded API and the practice GitHub
    postgres/             the database
    images/               what hosts pull from
    blobs/                uploads and attachments of test results
    scratch/              what the processor of test results is working on; empty otherwise
    hosts/NAME/           one host: its records and its VMs
    tokens/NAME           the parts' own credentials, renewed while the machine runs (0600)
    logs/NAME.log         one log a process

Everything is private to its owner: the directory has mode 0700. Under root it is 0711: the VMs' own users may pass
through to their folders, and see nothing on the way.
"""

import errno
import json
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

import msgspec

from runyard.files import write_whole

FULL = (errno.ENOSPC, errno.EDQUOT)
FORMAT = 1  # raised when an older version could no longer read what this one writes


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
    def urls(self) -> Path:
        """Where every part can be reached."""
        return self.root / "urls.json"

    @property
    def format(self) -> Path:
        """The version of the layout."""
        return self.root / "format"

    @property
    def machine_id(self) -> Path:
        """Who this machine is."""
        return self.root / "machine-id"

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

    @property
    def blobs(self) -> Path:
        """Where the server keeps uploads and attachments."""
        return self.root / "blobs"

    @property
    def scratch(self) -> Path:
        """Where the processor of test results works."""
        return self.root / "scratch"

    @property
    def hosts(self) -> Path:
        """The directories of the hosts."""
        return self.root / "hosts"

    def host(self, name: str) -> Path:
        """The directory of one host."""
        return self.hosts / name

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
            self._check_owner()
            self._close()
            self._check_format()
            for folder in ("hosts", "tokens", "logs", "images"):
                (self.root / folder).mkdir(exist_ok=True, mode=0o700)
            if os.geteuid() == 0:
                self.root.chmod(0o711)
                (self.root / "hosts").chmod(0o711)
            write_whole(self.format, f"{FORMAT}\n")  # each time: it also tells whether we may write
        except OSError as error:
            if error.errno in FULL:
                raise  # told as what it is
            raise BadDirectory(
                f"cannot use {self.root} as data directory: {error.strerror}."
                " Choose a directory that you may write, with --data DIR"
            ) from error

    def _check_owner(self) -> None:
        """Whoever works in somebody else's directory leaves files there that its owner cannot use."""
        owner = self.root.stat().st_uid
        if owner == os.geteuid():
            return
        if os.geteuid() == 0 and not any(self.root.iterdir()):
            os.chown(self.root, 0, -1)
            return
        raise BadDirectory(
            f"{self.root} belongs to {_name_of(owner)}, and this is {_name_of(os.geteuid())}."
            " Start it as its owner, or choose another directory with --data DIR"
        )

    def _check_format(self) -> None:
        """A directory of a newer version is not touched: it may hold what we would misread."""
        try:
            found = self.format.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return  # new, or of the first version, which wrote none
        if not found.isdecimal():
            raise BadDirectory(
                f"{self.format} is damaged: it holds no number. Write {FORMAT} into it if this version of"
                " runyard made the directory"
            )
        if int(found) > FORMAT:
            raise BadDirectory(
                f"{self.root} was made by a newer version of runyard (format {found}, this one knows {FORMAT})."
                " Install that version, or choose another directory with --data DIR"
            )

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


def _name_of(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"


_BEGIN_ANEW = "Restore it from a backup, or move the data directory away to begin anew"


def read_json(path: Path, *, fix: str = _BEGIN_ANEW) -> object:
    """A small JSON file of ours, or None if there is none; raises `BadDirectory` if it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadDirectory(f"{path} cannot be read ({error}). {fix}") from error
