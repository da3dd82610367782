"""Encrypts JIT configurations at rest, so that a copy of the database contains no usable credentials.

AES-256-GCM with the Pod's uid as associated data: a sealed JIT can be opened only for the slot it was made for.
"""

import random

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12


class SealError(Exception):
    """The sealed value cannot be opened: another key, another Pod, or damage."""


class Seal:
    """Seals and opens with one key. `rng` must be a system generator in production."""

    def __init__(self, key: bytes, *, rng: random.Random) -> None:
        self._cipher = AESGCM(key)
        self._rng = rng

    def close(self, text: str, *, pod_uid: str) -> bytes:
        """Seal a text for one Pod incarnation."""
        nonce = self._rng.randbytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, text.encode(), pod_uid.encode())

    def open(self, sealed: bytes, *, pod_uid: str) -> str:
        """Open what was sealed for that Pod incarnation; raises `SealError`."""
        try:
            plain = self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], pod_uid.encode())
        except (InvalidTag, ValueError) as error:
            raise SealError("a sealed JIT cannot be opened") from error
        return plain.decode()
