"""Keys and tokens of one machine: made once, kept in one private file, never shown.

They reach the processes of the machine through that file, never through arguments or the environment, where
other users could read them.
"""

import base64
import random

import msgspec

from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.up.layout import BadDirectory, Layout, read_json
from runyard.files import write_whole

_BYTES = 32


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """What must not leave this machine."""

    admin_token: str  # opens the embedded Kubernetes API
    people_token: str  # lets people queue jobs at the practice GitHub
    dashboard_token: str  # opens the dashboard when it is served off loopback
    webhook_secret: str
    seal_key: str  # base64 of 32 bytes: JITs at rest
    app_key: str  # PEM, of the practice GitHub's App
    app_public_key: str

    def __repr__(self) -> str:
        return "Secrets(…)"

    @property
    def seal(self) -> bytes:
        """The key itself."""
        return base64.b64decode(self.seal_key)


def load_or_make(layout: Layout, rng: random.Random) -> Secrets:
    """The secrets of this directory; the first call makes them. `rng` must be the system's generator."""
    if read_json(layout.secrets) is not None:
        return load(layout)
    if layout.kube.exists() or layout.postgres.exists():
        raise BadDirectory(
            f"{layout.secrets} is gone, but {layout.root} holds the state that it belongs to. Restore it from"
            " a backup, or move the data directory away to begin anew"
        )
    made = _make(rng, generate_key_pair())
    write_whole(layout.secrets, msgspec.json.encode(made).decode())
    return made


def load(layout: Layout) -> Secrets:
    """The secrets that are there already; raises `BadDirectory` if they are damaged or gone."""
    try:
        found = msgspec.convert(read_json(layout.secrets), Secrets)
        if len(found.seal) != _BYTES:
            raise ValueError("the seal's key has another length")
    except ValueError as error:
        raise BadDirectory(
            f"{layout.secrets} is damaged ({error}). Restore it from a backup: without it stored"
            " credentials cannot be opened"
        ) from error
    return found


def _make(rng: random.Random, key: KeyPair) -> Secrets:
    def text() -> str:
        return rng.randbytes(_BYTES).hex()

    return Secrets(
        admin_token=text(),
        people_token=text(),
        dashboard_token=text(),
        webhook_secret=text(),
        seal_key=base64.b64encode(rng.randbytes(_BYTES)).decode(),
        app_key=key.private_pem,
        app_public_key=key.public_pem,
    )
