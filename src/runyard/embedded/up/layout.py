"""The layout of one machine's data directory.

    kubeconfig            for kubectl (0600)
    tls/                  the machine's certificate authority, and the API's certificate
    secrets.json          keys and tokens, generated once (0600)
    dashboard.token       for the dashboard and the REST API (0600)
    metrics.token         for the metrics, from other machines (0600)
    ports.json            the chosen ports, so that they stay
    urls.json             the address of every component, for users and scripts
    restarts.json         which components were restarted, and why
    format                the version of this layout
    machine-id            the identity of this machine, for a shared database
    stores.json           the stores that were used: they must not be missing at the next start
    kube.db  github.db    the embedded API and the practice GitHub
    postgres/             the database
    images/               the images that hosts pull
    blobs/                uploads and attachments of test results
    scratch/              the working directory of the result processor; empty when idle
    hosts/NAME/           one host: its records, its VMs and how they are isolated
    tokens/NAME           the components' credentials, renewed while the machine runs (0600)
    logs/NAME.log         one log per process

Everything is private to its owner: the directory has mode 0700. Under root it is 0711: the VMs' users may pass
through to their folders, and cannot list anything on the way.
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
    """The data directory cannot be used; the message has the cause and the fix."""


class Layout(msgspec.Struct, frozen=True):
    """The paths below one data directory."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig for kubectl."""
        return self.root / "kubeconfig"

    @property
    def secrets(self) -> Path:
        """Keys and tokens."""
        return self.root / "secrets.json"

    @property
    def dashboard_token(self) -> Path:
        """The token for the dashboard and the REST API."""
        return self.root / "dashboard.token"

    @property
    def metrics_token(self) -> Path:
        """The token for the metrics, which gives access to nothing else."""
        return self.root / "metrics.token"

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
        """The address of every component."""
        return self.root / "urls.json"

    @property
    def restarts(self) -> Path:
        """Which components were restarted, and why."""
        return self.root / "restarts.json"

    @property
    def format(self) -> Path:
        """The version of the layout."""
        return self.root / "format"

    @property
    def machine_id(self) -> Path:
        """The identity of this machine."""
        return self.root / "machine-id"

    @property
    def stores(self) -> Path:
        """The record of the stores that were used."""
        return self.root / "stores.json"

    @property
    def kube(self) -> Path:
        """The embedded API's journal."""
        return self.root / "kube.db"

    @property
    def github(self) -> Path:
        """The practice GitHub's store."""
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
        """Where the server stores uploads and attachments."""
        return self.root / "blobs"

    @property
    def scratch(self) -> Path:
        """Where the result processor works."""
        return self.root / "scratch"

    @property
    def hosts(self) -> Path:
        """The directories of the hosts."""
        return self.root / "hosts"

    def host(self, name: str) -> Path:
        """The directory of one host."""
        return self.hosts / name

    def token(self, component: str) -> Path:
        """The credential of one component."""
        return self.root / "tokens" / component

    def log(self, process: str) -> Path:
        """The log of one process."""
        return self.root / "logs" / f"{process}.log"

    def prepare(self) -> None:
        """Creates the directories; raises `BadDirectory`."""
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
            write_whole(
                self.format, f"{FORMAT}\n"
            )  # each time: this also tests that it is writable
        except OSError as error:
            if error.errno in FULL:
                raise  # a full disk has its own message
            raise BadDirectory(
                f"cannot use {self.root} as data directory: {error.strerror}."
                " Choose a directory that you may write, with --data DIR"
            ) from error

    def _check_owner(self) -> None:
        """Refuses a directory of another user: its owner could not use the files that we leave there."""
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
        """Refuses a directory of a newer version: we could misread its content."""
        try:
            found = self.format.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            return  # new, or of the first version, which wrote none
        if not found.isdecimal():
            raise BadDirectory(
                f"{self.format} is damaged: it contains no number. Write {FORMAT} into it if this version of"
                " runyard created the directory"
            )
        if int(found) > FORMAT:
            raise BadDirectory(
                f"{self.root} was made by a newer version of runyard (format {found}, this version supports {FORMAT})."
                " Install that version, or choose another directory with --data DIR"
            )

    def _close(self) -> None:
        """Closes the directory to other users; refuses one that holds other files, given by mistake."""
        if not self.root.stat().st_mode & 0o066:
            return
        if any(self.root.iterdir()) and not self.secrets.exists():
            raise BadDirectory(
                f"{self.root} holds other files and is open to others, so it is not used as data directory."
                " Choose a new or an empty directory, with --data DIR"
            )
        self.root.chmod(0o700)


def default_root(environ: Mapping[str, str]) -> Path:
    """`~/.local/share/runyard`, or below XDG_DATA_HOME."""
    home = environ.get("XDG_DATA_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "share"
    return base / "runyard"


def _name_of(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"the user {uid}"


_BEGIN_ANEW = "Restore it from a backup, or move the data directory away to start with an empty one"


def read_json(path: Path, *, fix: str = _BEGIN_ANEW) -> object:
    """Reads a small JSON file; None if there is none; raises `BadDirectory` if it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadDirectory(f"{path} cannot be read ({error}). {fix}") from error
