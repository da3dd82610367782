"""Creates Apps from manifests: a user confirms on a page, and the code of the redirect is exchanged for the App, once.

There is one App here, so the "new" App is that one with the manifest's name, a new key beside the old ones, and a
new webhook secret. The codes are lost when this GitHub ends; GitHub's last for an hour.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from runyard.embedded.github import render
from runyard.embedded.github.deliveries import DeliveryLog
from runyard.embedded.github.identity import Authenticator, Denied, NotFound, generate_key_pair
from runyard.http.messages import Request, Response, json_response


class Manifests:
    """Manifests that were confirmed and not yet exchanged."""

    def __init__(
        self, *, rng: random.Random, app_id: int, authenticator: Authenticator, log: DeliveryLog
    ) -> None:
        self._rng = rng
        self._app_id = app_id
        self._authenticator = authenticator
        self._log = log
        self._codes: dict[str, Mapping[str, Any]] = {}

    def submit(self, manifest: Mapping[str, Any]) -> str:
        """Accepts a manifest; returns the code."""
        code = self._rng.randbytes(20).hex()
        self._codes[code] = manifest
        return code

    def serve(self, request: Request, path: Sequence[str]) -> Response:
        """Endpoints under `/app-manifests`; the code is the credential."""
        match (request.method, *path):
            case ("POST", "app-manifests", code, "conversions"):
                manifest = self._codes.pop(code, None)
                if manifest is None:
                    raise NotFound
                return self._convert(manifest)
            case _:
                raise NotFound

    def _convert(self, manifest: Mapping[str, Any]) -> Response:
        name = str(manifest.get("name") or "")
        if not name:
            raise Denied(422, "Invalid request. The manifest has no name")
        keys, secret = generate_key_pair(), self._rng.randbytes(20).hex()
        self._authenticator.add_key(keys.public_pem)
        self._log.sign_with(secret)
        slug = "-".join(name.lower().split())
        app = {
            "id": self._app_id,
            "slug": slug,
            "name": name,
            "owner": {"login": "practice"},
            "html_url": f"{render.HOST}/apps/{slug}",
            "external_url": str(manifest.get("url") or ""),
            "events": list(manifest.get("default_events") or ()),
            "permissions": dict(manifest.get("default_permissions") or {}),
            "client_id": f"Iv1.{self._rng.randbytes(8).hex()}",
            "client_secret": self._rng.randbytes(20).hex(),
            "webhook_secret": secret,
            "pem": keys.private_pem,
        }
        return json_response(201, app)
