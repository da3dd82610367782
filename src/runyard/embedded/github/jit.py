"""Builds the JIT configuration: all that a runner program needs to connect as one registration.

As GitHub's, it is base64 of a JSON object whose values are files in base64: `.runner` identifies the runner, and
`.credentials` holds the secret. Where runner programs connect over HTTP, `.runner` also holds this GitHub's
address, so that nothing else is needed to start.
"""

import base64
import random

import msgspec

from runyard.embedded.github.model import Runner

_SECRET_BYTES = 24


def encode_jit(runner: Runner, *, rng: random.Random, public_url: str) -> str:
    """A new JIT configuration of a registration."""
    inner: dict[str, object] = {
        "agentId": runner.id,
        "agentName": runner.name,
        "ephemeral": True,
        "workFolder": runner.work_folder,
        "practice": True,
    }
    if public_url:
        inner["serverUrl"] = public_url
    files = {
        ".runner": msgspec.json.encode(inner),  # bytes in JSON are base64
        ".credentials": rng.randbytes(_SECRET_BYTES),
    }
    return base64.b64encode(msgspec.json.encode(files)).decode()
