"""The private directory in which `runyard github connect` saves the App for the server.

    app.json          the App's id and name, the URL of its GitHub, its owner
    app.pem           its private key
    webhook.secret    the secret that signs webhooks

Invariants:
- The directory and each file are created readable by their owner only.
- A directory that contains anything else, or belongs to another user, is not changed.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from runyard.cli.options import BadSetting
from runyard.files import write_whole

PRIVATE_DIRECTORY = 0o700


class Connected(msgspec.Struct, frozen=True, kw_only=True):
    """An App that was created."""

    app_id: int
    slug: str
    html_url: str
    github_url: str
    organisation: str = ""


class AppDirectory(msgspec.Struct, frozen=True):
    """The directory."""

    root: Path

    @property
    def app(self) -> Path:
        """The App's description."""
        return self.root / "app.json"

    @property
    def key(self) -> Path:
        """The App's private key."""
        return self.root / "app.pem"

    @property
    def secret(self) -> Path:
        """The webhook's secret."""
        return self.root / "webhook.secret"

    def prepare(self) -> None:
        """Create the directory, readable by its owner only."""
        try:
            self.root.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            if not self._ours():
                raise BadSetting(
                    f"--github-dir: {self.root} contains other files. Use a directory of its own"
                )
            self.root.chmod(PRIVATE_DIRECTORY)
        except OSError as error:
            raise BadSetting(
                f"--github-dir: {self.root} cannot be used ({error.strerror}). Choose another one"
            ) from None

    def _ours(self) -> bool:
        names = tuple(path.name for path in (self.app, self.key, self.secret))
        drafts = tuple(f".{name}." for name in names)
        return self.root.stat().st_uid == os.geteuid() and all(
            each.name in names or each.name.startswith(drafts) for each in self.root.iterdir()
        )

    def keep(self, app: Connected, *, key: str, secret: str) -> None:
        """Write all files; the App's description last, so that it exists only if all others do."""
        write_whole(self.key, key)
        write_whole(self.secret, secret + "\n")
        write_whole(self.app, msgspec.json.encode(app))

    def webhook_secret(self) -> str:
        """The webhook's secret; empty if there is none."""
        try:
            return self.secret.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            why = f"cannot be read ({error.strerror}). Check its permissions"
        except ValueError:
            why = "is not text. Restore it, or remove the directory and connect again"
        raise BadSetting(f"--github-dir: {self.secret} {why}")

    def load(self) -> Connected | None:
        """The App in the directory; `None` if there is none."""
        try:
            text = self.app.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadSetting(
                f"--github-dir: {self.app} cannot be read ({error.strerror}). Check its permissions"
            ) from None
        try:
            return msgspec.json.decode(text, type=Connected)
        except msgspec.MsgspecError:
            raise BadSetting(
                f"--github-dir: {self.app} is damaged. Remove the directory and connect again, or restore it"
            ) from None


def default_directory(environ: Mapping[str, str]) -> Path:
    """The default directory."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "runyard" / "github"
