"""Asks the dispatch server for a job on behalf of a guest: a program that a shim starts, `poller STATE`.

It polls as a guest's own script does (`vm/guest/dispatch-poll.sh`) and writes one line of JSON, then ends:

    {"jit": "...", "env": {...}}     200 with a JIT configuration
    {"end": 1, "why": "..."}         401, 403: this machine's identity is not accepted
    {"end": 0, "why": "..."}         410, or 401 after the token has expired: this machine is to be replaced
    (it polls again, for ever)       anything else, also no response

Before each poll it writes an empty line, so that its shim knows that it is not stuck.

Invariants:
- The token is read from a file for each poll, so that it may be renewed there; it is in no argument, environment or
  output. It is sent to one address: redirects are not followed.
- The end of its input is the end of its shim: it ends at once, so that no answer is taken that nothing can use.
- It imports nothing but the standard library, and `ssl` only for a server that needs it.
"""

import base64
import contextlib
import http.client
import json
import os
import re
import signal
import sys
import threading
import time
import urllib.parse
from typing import Any

from runyard.vm.shim.exits import TOKEN

_LIMIT = 1 << 20  # bytes of a response
_LARGEST_JIT = 40_000  # it has to fit into a pipe
_LONGEST_PAUSE = 300.0
_NO_TOKEN = -1  # in place of a status: there was nothing to ask with
_JIT = re.compile(r"[A-Za-z0-9+/=_.-]+")
_URL = re.compile(r"https?://[!-~]+")
_GRANT = re.compile(r"[!-~]{1,16384}")
_BUNDLES = (  # of certificates that the system trusts, for a Python that looks elsewhere
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)


class Answer:
    """A response: its status, 0 if there was none; its body; how long the server wants not to be asked."""

    def __init__(self, status: int, body: bytes = b"", wait: float = 0.0) -> None:
        self.status, self.body, self.wait = status, body, wait


def poll(settings: dict[str, Any], token: str, context: Any) -> Answer:
    """One poll, with a deadline for the whole of it, however slowly the response arrives."""
    parts = urllib.parse.urlsplit(settings["url"])
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Prefer": "wait=25",
    }
    seconds = float(settings["timeout"])
    link = (
        http.client.HTTPConnection(parts.netloc, timeout=seconds)
        if context is None
        else http.client.HTTPSConnection(parts.netloc, timeout=seconds, context=context)
    )
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        link.request("POST", path, body=b"{}", headers=headers)
        response = link.getresponse()
        body = response.read(_LIMIT + 1)
    except (OSError, ValueError, http.client.HTTPException):
        return Answer(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        link.close()
    if len(body) > _LIMIT:
        return Answer(0)
    return Answer(response.status, body, _retry_after(response.headers.get("Retry-After", "")))


def read_token(state: str) -> str:
    """The Pod's token, as it is now; empty if there is none."""
    with (
        contextlib.suppress(FileNotFoundError),
        open(f"{state}/{TOKEN}", encoding="ascii") as file,  # noqa: PTH123 pathlib is slow to import
    ):
        return file.read().strip()
    return ""


def has_expired(token: str, now: float) -> bool:
    """Whether this token says that its time is over: a runner may wait longer for a job than a token is valid."""
    with contextlib.suppress(LookupError, ValueError, TypeError, AttributeError):
        claims = token.split(".")[1] + "==="  # base64 needs its padding, and ignores too much of it
        return float(json.loads(base64.urlsafe_b64decode(claims)).get("exp")) <= now
    return False


def outcome(answer: Answer, *, expired: bool = False) -> dict[str, Any] | None:
    """What an answer means for the VM; None: poll again."""
    if answer.status == _NO_TOKEN:
        return {"end": 1, "why": "the Pod has no token: automountServiceAccountToken must be true"}
    if answer.status == 401 and expired:
        return {"end": 0, "why": "the Pod's token expired before there was a job: it is replaced"}
    if answer.status in (401, 403):
        return {"end": 1, "why": f"the server refused this machine's token with {answer.status}"}
    if answer.status == 410:
        return {"end": 0, "why": "the server drains this runner (410): it is replaced"}
    if answer.status != 200:
        return None
    with contextlib.suppress(ValueError):
        found = json.loads(answer.body)
        jit = found.get("encoded_jit_config") if isinstance(found, dict) else None
        if isinstance(jit, str) and len(jit) <= _LARGEST_JIT and _JIT.fullmatch(jit):
            return {"jit": jit, "env": _extras(found)}
    return None


def _extras(found: dict[str, Any]) -> dict[str, str]:
    """The other fields of the answer that a job may use."""
    known = {
        "TUIST_CACHE_ENDPOINT": (found.get("cache_endpoint_url"), _URL),
        "TUIST_CACHE_SIGNING_GRANT": (found.get("cache_signing_grant"), _GRANT),
    }
    return {
        name: value
        for name, (value, form) in known.items()
        if isinstance(value, str) and form.fullmatch(value)
    }


def _retry_after(text: str) -> float:
    return min(float(text), _LONGEST_PAUSE) if text.isascii() and text.isdigit() else 0.0


def _context(settings: dict[str, Any]) -> Any:
    """How the server is verified; None: it is asked without TLS."""
    if not settings["url"].startswith("https:"):
        return None
    import ssl  # noqa: PLC0415 large, and needed for TLS only

    if settings["ca"]:
        return ssl.create_default_context(cadata=settings["ca"])
    context = ssl.create_default_context()
    if ssl.get_default_verify_paths().cafile is None:
        for path in filter(os.path.exists, _BUNDLES):
            context.load_verify_locations(path)
            break
    return context


def _chance() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2**32


def _end_with_shim() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


def _late(*_: object) -> None:
    raise TimeoutError("the poll took too long")


def main(argv: list[str]) -> int:
    """Polls until there is an outcome, and prints it."""
    state = argv[0]
    with open(f"{state}/order.json", "rb") as file:  # noqa: PTH123 pathlib is slow to import
        settings = json.load(file)["polling"]
    threading.Thread(target=_end_with_shim, daemon=True).start()
    signal.signal(signal.SIGALRM, _late)
    context = _context(settings)
    last = 200
    while True:
        sys.stdout.write("\n")  # the shim replaces a poller that prints nothing
        sys.stdout.flush()
        token = read_token(state)
        answer = poll(settings, token, context) if token else Answer(_NO_TOKEN)
        found = outcome(answer, expired=has_expired(token, time.time()))
        if found is not None:
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
            return 0
        if answer.status not in (last, 204):
            sys.stderr.write(f"runyard: the poll failed with {answer.status:03d}: polling again\n")
        last = answer.status
        time.sleep(max(answer.wait, float(settings["pause"])) * (0.75 + _chance() / 2))
