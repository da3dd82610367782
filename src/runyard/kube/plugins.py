"""Runs credential plugins, the exec plugins of kubectl (`aws eks get-token`, `gke-gcloud-auth-plugin`, …).

The program gets `KUBERNETES_EXEC_INFO` and answers with an `ExecCredential` on its standard output. It may
hang or print too much, so it runs with a deadline, with bounded output, in a session of its own (`runyard.proc`), and
never with a terminal: a daemon cannot answer a password prompt.

Invariants:
- One run at a time, shared by all requests: a request that is cancelled does not end the run.
- What it printed is used until `expirationTimestamp`, without one until the API refuses it.
- A program that fails, or whose credential is refused again and again, is run once in `PAUSE` seconds, not once a
  request.
- Its standard output is in no message. Of its standard error the last lines are, without what we know or can see to be
  a secret, because plugins print "log in first" there.
"""

import asyncio
import base64
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from runyard import proc
from runyard.clock import Clock
from runyard.kube.config import REDACTED, Cluster, Plugin, Secret
from runyard.kube.credentials import (
    Certificate,
    Credential,
    CredentialsUnavailable,
)
from runyard.kube.entries import is_token
from runyard.telemetry.log import get_logger, redact
from runyard.wire.instants import from_rfc3339

DEADLINE = 60.0
PAUSE = 10.0
OUTPUT_LIMIT = 256 << 10
SHOWN = 300  # characters of standard error in a message
KIND = "ExecCredential"
INFO_VARIABLE = "KUBERNETES_EXEC_INFO"

_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")
_LONG_WORD = re.compile(r"[A-Za-z0-9_+/=.~-]{32,}")  # long enough to be a key


class Issued(msgspec.Struct, frozen=True):
    """What a plugin printed; `expires` is in seconds since the epoch, or never."""

    credential: Credential
    expires: float | None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


class PluginCredentials:
    """The credentials that a plugin prints. Implements `Credentials`."""

    def __init__(
        self,
        plugin: Plugin,
        cluster: Cluster,
        *,
        clock: Clock,
        environ: Mapping[str, str],
        deadline: float = DEADLINE,
    ) -> None:
        self._plugin = plugin
        self._cluster = cluster
        self._clock = clock
        self._environ = dict(environ)
        self._deadline = deadline
        self._log = get_logger("kube.auth", plugin=plugin.command)
        self._held: Credential | None = None
        self._until: float | None = None
        self._running: asyncio.Task[Credential | CredentialsUnavailable] | None = None
        self._failure: tuple[float, CredentialsUnavailable] | None = None
        self._refused_at: float | None = None
        self._closed = False

    async def current(self) -> Credential:
        """What the plugin printed last, if that has not expired; else run it."""
        held = self._held
        if held is not None and (self._until is None or self._clock.now() < self._until):
            return held
        if self._failure is not None:
            at, failure = self._failure
            if self._clock.monotonic() - at < PAUSE:
                raise CredentialsUnavailable(failure.cause, fix=failure.fix)
        outcome = await self._wait_for_run()
        if isinstance(outcome, CredentialsUnavailable):
            raise CredentialsUnavailable(outcome.cause, fix=outcome.fix)
        return outcome

    async def renew(self, refused: Credential) -> Credential:
        """Run the plugin again, unless another task has done so since or it was just tried."""
        now = self._clock.monotonic()
        tried = self._refused_at is not None and now - self._refused_at < PAUSE
        if self._held == refused and not tried:
            self._refused_at = now
            self._held = None
        return await self.current()

    async def close(self) -> None:
        """End the plugin if it runs."""
        self._closed = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))

    async def _wait_for_run(self) -> Credential | CredentialsUnavailable:
        """Wait for the run under way, which is started if there is none."""
        closed = CredentialsUnavailable("the connection was closed", fix="connect again")
        if self._closed:
            return closed
        if self._running is None:
            # Not in the task group of the first request: the run serves all requests, and `close` ends it.
            self._running = asyncio.get_running_loop().create_task(self._run(), name="kube plugin")
        running = self._running
        await asyncio.wait((running,))  # our a cancellation of this wait does not end the run
        return closed if running.cancelled() else running.result()

    async def _run(self) -> Credential | CredentialsUnavailable:
        try:
            issued = await run_plugin(
                self._plugin, self._cluster, environ=self._environ, deadline=self._deadline
            )
        except CredentialsUnavailable as failure:
            self._held = None
            self._failure = (self._clock.monotonic(), failure)
            self._log.warning("the plugin printed no credential", cause=failure.cause)
            return failure
        finally:
            self._running = None
        self._failure = None
        self._held = issued.credential
        self._until = issued.expires
        now = self._clock.now()
        if issued.expires is not None and issued.expires <= now:
            # Either clock is wrong. Try it, but do not run the plugin for each request.
            self._until = now + PAUSE
            self._log.warning("the plugin's credential has expired already: check the clock")
        return issued.credential


async def run_plugin(
    plugin: Plugin, cluster: Cluster, *, environ: Mapping[str, str], deadline: float = DEADLINE
) -> Issued:
    """Run the plugin once and read what it printed."""
    given = {name: value.reveal() for name, value in plugin.env}
    info = msgspec.json.encode(exec_info(plugin, cluster)).decode()
    try:
        done = await proc.run(
            (plugin.command, *(arg.reveal() for arg in plugin.args)),
            timeout=deadline,
            env={**environ, **given, INFO_VARIABLE: info},
            limit=OUTPUT_LIMIT,
        )
    except proc.ProgramMissing:
        hint = _printable(plugin.install_hint) or "install it, or put its directory on PATH"
        raise CredentialsUnavailable(
            f"the plugin {plugin.command} was not found", fix=hint
        ) from None
    except proc.ProgramRefused as error:
        raise CredentialsUnavailable(str(error), fix="check its permissions") from None
    except proc.DeadlineExceeded as error:
        printed = _stderr_tail(plugin, error.partial.stderr)
        cause = f"the plugin {plugin.command} did not end within {deadline:g} s{printed}"
        fix = "it may wait for input, which a daemon cannot give: log in by hand first"
        raise CredentialsUnavailable(cause, fix=fix) from None
    if done.code != 0:
        printed = _stderr_tail(plugin, done.stderr)
        cause = f"the plugin {plugin.command} failed with code {done.code}{printed}"
        raise CredentialsUnavailable(cause, fix="run `kubectl auth whoami` to reproduce it")
    return read_answer(plugin, done.stdout)


def exec_info(plugin: Plugin, cluster: Cluster) -> dict[str, Any]:
    """Build KUBERNETES_EXEC_INFO, always non-interactive."""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        info = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure,
            "certificate-authority-data": base64.b64encode(cluster.authority.encode()).decode(),
            "config": cluster.plugin_config,
        }
        spec["cluster"] = {name: value for name, value in info.items() if value}
    return {"apiVersion": plugin.api_version, "kind": KIND, "spec": spec}


def read_answer(plugin: Plugin, output: bytes) -> Issued:
    """Parse the plugin's output; errors do not quote it."""
    problem, status, expires = "", _Status(), None
    try:
        answer = _ANSWER.decode(output)
        status = answer.status or status
        if answer.kind != KIND or answer.api_version != plugin.api_version:
            problem = f"did not print an {KIND} of {plugin.api_version}"
        if status.expiration_timestamp:
            expires = from_rfc3339(status.expiration_timestamp)
    except (msgspec.MsgspecError, ValueError, OverflowError):
        problem = f"printed something that is no {KIND}"
    token, chain, key = (
        status.token or "",
        status.client_certificate_data or "",
        status.client_key_data or "",
    )
    if not problem and token and not is_token(token):
        problem = "printed a token with characters that no token has"
    if not problem and bool(chain) != bool(key):
        problem = "printed a certificate without its key, or a key without its certificate"
    if not problem and not token and not chain:
        problem = "printed neither a token nor a certificate"
    if problem:
        cause = f"the plugin {plugin.command} {problem}"
        raise CredentialsUnavailable(cause, fix="update the plugin, or correct its arguments")
    certificate = Certificate(Secret(chain), Secret(key)) if chain else None
    return Issued(Credential(Secret(token), certificate), expires)


def _stderr_tail(plugin: Plugin, stderr: bytes) -> str:
    """Return the last lines of standard error, without secrets."""
    if len(stderr) >= OUTPUT_LIMIT:
        return ""  # truncated: a secret that is cut in two would not be recognised
    text = stderr.decode("utf-8", "replace")
    known = [value.reveal() for _, value in plugin.env] + [arg.reveal() for arg in plugin.args]
    for value in sorted(known, key=len, reverse=True):
        if len(value) >= 6:
            text = text.replace(value, REDACTED)
    text = _printable(_LONG_WORD.sub(REDACTED, str(redact(text))))
    return f" and printed: {text[-SHOWN:]}" if text else ""


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub(" ", text).strip()
