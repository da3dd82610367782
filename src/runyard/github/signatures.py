"""Verifies the signatures of webhooks.

GitHub signs the raw body of a delivery with the webhook's secret and sends the HMAC in
`x-hub-signature-256`. During a rotation, and with per-installation secrets, several may be right.

Invariants:
- The comparison takes the same time whatever the header holds and whichever secret matched.
- An empty secret never verifies anything: a secret that was not configured must not accept any request.
"""

import hashlib
import hmac
from collections.abc import Iterable

_PREFIX = "sha256="


def sign(body: bytes, secret: str) -> str:
    """The header value that GitHub would send with this body."""
    return _PREFIX + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def verify(body: bytes, header: str, secrets: Iterable[str]) -> bool:
    """Whether one of `secrets` signed `body`; every secret is tried, also after a match."""
    given = header.encode("utf-8", "surrogatepass")
    verified = False
    for secret in secrets:
        expected = sign(body, secret).encode()
        verified |= hmac.compare_digest(expected, given) and secret != ""
    return verified
