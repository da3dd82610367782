"""Builds an authenticated transport to the API from a configuration.

Trust is kubectl's: a configured authority is the only one that is trusted (a certificate in the middle of a chain
may be the anchor), without one it is the system's list, and the name that must be in the server's certificate is
`tls-server-name` if that is set.

Invariants:
- A key is never in a file with a name: OpenSSL reads it from an open file that is in memory only or, where that does
  not exist, was removed before the key was written into it. No crash can leave one behind.
- A key with a pass phrase is refused; the library would prompt for it on the terminal.
"""

import os
import ssl
import sys
import tempfile
from collections.abc import Mapping
from typing import IO

import msgspec

from runyard.clock import Clock
from runyard.http.client import HttpTransport
from runyard.kube.auth import AuthTransport
from runyard.kube.config import Cluster, Config, ConfigError, Secret, Source
from runyard.kube.credentials import Certificate, Credentials, StoredCredentials
from runyard.kube.entries import file_problem, read_text
from runyard.kube.plugins import PluginCredentials
from runyard.telemetry.log import get_logger

PAIR_FIX = "the certificate and the key must be a pair of PEM texts, the key without a pass phrase"


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Address, TLS context and credentials of the API, for callers with their own transport.

    `tls` is None for plain http; it holds a client certificate of the configuration, but not one that a
    plugin will print.
    """

    server: str
    tls: ssl.SSLContext | None
    namespace: str
    credentials: Credentials


class _NamedContext(ssl.SSLContext):
    """A context that expects one name of the server, whatever name it was dialled by."""

    server_name: str = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Replace the name; asyncio makes its connections here."""
        return super().wrap_bio(
            incoming,
            outgoing,
            server_side=server_side,
            server_hostname=self.server_name or server_hostname,
            session=session,
        )


def connect(
    config: Config,
    *,
    clock: Clock,
    environ: Mapping[str, str],
    pool: int = 100,
    agent: str = "runyard",
) -> AuthTransport:
    """A transport for the API of this configuration. Nothing is sent or run before the first request."""
    cluster = config.cluster
    _configured_tls(config)  # an invalid certificate is an error now
    if cluster.insecure:
        log = get_logger("kube.auth")
        log.warning("the server's certificate is not verified", server=cluster.server)

    def redial(certificate: Certificate) -> HttpTransport:
        tls = client_tls(cluster, certificate)
        return HttpTransport(cluster.server, tls=tls, pool=pool, agent=agent)

    return AuthTransport(
        HttpTransport(cluster.server, tls=client_tls(cluster), pool=pool, agent=agent),
        credentials_of(config, clock=clock, environ=environ),
        clock=clock,
        redial=redial if cluster.encrypted else None,
    )


def connection(config: Config, *, clock: Clock, environ: Mapping[str, str]) -> Connection:
    """The same in parts. A client certificate in files is read here and not again; `connect` reads it again."""
    return Connection(
        server=config.cluster.server,
        tls=_configured_tls(config),
        namespace=config.namespace,
        credentials=credentials_of(config, clock=clock, environ=environ),
    )


def credentials_of(config: Config, *, clock: Clock, environ: Mapping[str, str]) -> Credentials:
    """Return the source of this configuration's credentials."""
    user = config.user
    if user.plugin is None:
        return StoredCredentials(user, clock=clock)
    return PluginCredentials(user.plugin, config.cluster, clock=clock, environ=environ)


def client_tls(cluster: Cluster, certificate: Certificate | None = None) -> ssl.SSLContext | None:
    """Build the TLS context for this cluster; None for plain http."""
    if not cluster.encrypted:
        return None
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.server_name = cluster.tls_server_name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cluster.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif cluster.authority:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=cluster.authority)
    else:
        context.load_default_certs()
    if certificate is not None:
        load_certificate(context, certificate)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Load the client certificate into the context."""
    try:
        with _nameless_file() as chain, _nameless_file() as key:
            context.load_cert_chain(
                _filled(chain, certificate.chain),
                _filled(key, certificate.key),
                password=_no_pass_phrase,
            )
            return
    except (ssl.SSLError, ValueError):
        cause = "the client certificate and its key cannot be used"
    except OSError as error:
        cause = f"a temporary file for the client certificate {file_problem(error)}"
    raise ConfigError(cause, fix=PAIR_FIX)


def _nameless_file() -> IO[bytes]:
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("pem"), "w+b")  # never on any disk
    else:  # noqa: RET505 - the type checker understands the other form only on one system
        return tempfile.TemporaryFile()


def _filled(file: IO[bytes], text: Secret) -> str:
    """Write into the file and return a path by which this process alone can open it."""
    file.write(text.reveal().encode())
    file.flush()
    file.seek(0)  # on some systems both file descriptors share the position
    return f"/dev/fd/{file.fileno()}"


def _no_pass_phrase() -> str:
    raise ValueError("the key has a pass phrase")


def _configured_tls(config: Config) -> ssl.SSLContext | None:
    """Build the TLS context with the client certificate of the configuration, if it has one."""
    user = config.user
    if not user.certificate:
        return client_tls(config.cluster)
    pair = Certificate(_text(user.certificate), _text(user.key))
    try:
        return client_tls(config.cluster, pair)
    except ConfigError as error:
        cause, fix = error.cause, error.fix
    raise ConfigError(cause, fix=fix, file=config.source, entry=f"user {user.name!r}")


def _text(source: Source) -> Secret:
    try:
        return Secret(read_text(source.path)) if source.path else source.data
    except (OSError, ValueError) as error:
        why = file_problem(error)
    raise ConfigError(why, fix="check the path and its permissions", file=source.path)
