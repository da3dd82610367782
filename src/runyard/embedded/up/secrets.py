"""Generates and loads the keys and tokens of one machine; they are in one private file and never shown.

The processes of the machine read them from that file, never from arguments or the environment, where other users
could read them.
"""

import base64
import random

import msgspec

from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.up.layout import BadDirectory, Layout, read_json
from runyard.files import write_whole

_BYTES = 32


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets of one machine."""

    admin_token: str  # for the embedded Kubernetes API
    practice_token: str = msgspec.field(name="people_token")  # for the practice routes
    dashboard_token: str  # the first content of its own file
    webhook_secret: str
    seal_key: str  # base64 of 32 bytes: encrypts stored JIT configurations
    app_key: str  # PEM, of the practice GitHub's App
    app_public_key: str

    def __repr__(self) -> str:
        return "Secrets(…)"

    @property
    def seal(self) -> bytes:
        """The decoded key."""
        return base64.b64decode(self.seal_key)


def load_or_make(layout: Layout, rng: random.Random) -> Secrets:
    """The secrets of this directory; the first call generates them. `rng` must be the system's generator."""
    if read_json(layout.secrets) is not None:
        return load(layout)
    if any(path.exists() for path in (layout.kube, layout.postgres, layout.stores)):
        raise BadDirectory(
            f"{layout.secrets} is missing, but {layout.root} contains state that needs it. Restore it from"
            " a backup, or move the data directory away to start with an empty one"
        )
    made = _make(rng, generate_key_pair())
    write_whole(layout.secrets, msgspec.json.encode(made).decode())
    return made


def load(layout: Layout) -> Secrets:
    """The existing secrets; raises `BadDirectory` if they are damaged or gone."""
    try:
        found = msgspec.convert(read_json(layout.secrets), Secrets)
        if len(found.seal) != _BYTES:
            raise ValueError("the seal key has the wrong length")
    except ValueError as error:
        raise BadDirectory(
            f"{layout.secrets} is damaged ({error}). Restore it from a backup: without it stored"
            " credentials cannot be decrypted"
        ) from error
    return found


def _make(rng: random.Random, key: KeyPair) -> Secrets:
    def text() -> str:
        return rng.randbytes(_BYTES).hex()

    return Secrets(
        admin_token=text(),
        practice_token=text(),
        dashboard_token=text(),
        webhook_secret=text(),
        seal_key=base64.b64encode(rng.randbytes(_BYTES)).decode(),
        app_key=key.private_pem,
        app_public_key=key.public_pem,
    )
