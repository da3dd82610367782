"""Interprets the cluster and user entries of a kubeconfig.

Only the entries that are used are validated: an unused user entry with an unsupported method must not prevent a
connection.

Invariants:
- A field that changes the identity or the server is either supported or refused by name. None is ignored.
- A relative path is relative to the file that it is written in.
- Credentials never leave this machine unencrypted: a server that is plain `http` and not on this machine is
  refused together with them.
"""

import base64
import binascii
import ipaddress
import re
import ssl
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from runyard.http.addresses import is_loopback
from runyard.kube.config import Cluster, ConfigError, Plugin, Secret, Source, User
from runyard.kube.kubeyaml import FIX, read_bounded

PEM_LIMIT = 1 << 20
EXEC_GROUP = "client.authentication.k8s.io"
EXEC_VERSIONS = (f"{EXEC_GROUP}/v1", f"{EXEC_GROUP}/v1beta1")
PLUGIN_EXTENSION = f"{EXEC_GROUP}/exec"
INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
USE_PLUGIN = "use a token, a client certificate or an exec plugin"

# Fields that change the user's identity, with the reason why they are not supported.
REFUSED_USER_FIELDS = {
    "username": "basic authentication was removed from Kubernetes",
    "password": "basic authentication was removed from Kubernetes",
    "auth-provider": "built-in providers were removed from Kubernetes; each has an exec plugin now",
    "as": "impersonation is not supported",
    "as-uid": "impersonation is not supported",
    "as-groups": "impersonation is not supported",
    "as-user-extra": "impersonation is not supported",
}

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")

T = TypeVar("T")


class Entry(msgspec.Struct, frozen=True):
    """A named entry as it is in a file, and that file."""

    kind: str
    name: str
    file: Path
    body: dict[str, Any]

    def error(self, cause: str, *, fix: str = FIX) -> ConfigError:
        """Build an error about this entry."""
        return ConfigError(cause, fix=fix, file=str(self.file), entry=f"{self.kind} {self.name!r}")

    def path(self, written: str) -> str:
        """A path of this entry, made absolute."""
        return str(self.file.parent.absolute() / written) if written else ""

    def read_as(self, type_: type[T], body: Any = None) -> T:
        """The body as a struct."""
        try:
            return msgspec.convert(self.body if body is None else body, type_)
        except msgspec.ValidationError as error:  # names types and the place, never a value
            problem = str(error)
        raise self.error(problem)


class _Extension(msgspec.Struct, frozen=True):
    name: str = ""
    extension: Any = None


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: tuple[_Extension, ...] = ()


class _Variable(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class _Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str = ""
    api_version: str = ""
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: _Exec | None = None


def read_cluster(entry: Entry) -> Cluster:
    """The cluster that this entry describes."""
    fields = entry.read_as(_Cluster)
    if fields.proxy_url:
        fix = "connect without it, or run the proxy on this machine and name that as the server"
        raise entry.error("proxy-url is not supported", fix=fix)
    authority = _pem(entry, "certificate-authority", fields.certificate_authority_data)
    if fields.certificate_authority:
        if authority:
            raise _both(entry, "certificate-authority")
        authority = _file_text(
            entry, "certificate-authority", entry.path(fields.certificate_authority)
        )
    if authority and fields.insecure_skip_tls_verify:
        cause = "certificate-authority and insecure-skip-tls-verify exclude each other"
        raise entry.error(cause, fix="remove insecure-skip-tls-verify")
    if authority:
        _check_authority(entry, authority)
    if fields.tls_server_name and not _is_host(fields.tls_server_name):
        raise entry.error("tls-server-name is not the name of a server")
    configs = [item.extension for item in fields.extensions if item.name == PLUGIN_EXTENSION]
    return Cluster(
        server=_server(entry, fields.server),
        authority=authority,
        insecure=fields.insecure_skip_tls_verify,
        tls_server_name=fields.tls_server_name,
        plugin_config=configs[0] if configs else None,
    )


def read_user(entry: Entry) -> User:
    """The user that this entry describes; the files that it names are there and readable."""
    for field, reason in REFUSED_USER_FIELDS.items():
        if entry.body.get(field):
            raise entry.error(f"{field} is refused: {reason}", fix=USE_PLUGIN)
    fields = entry.read_as(_User)
    certificate = _source(
        entry, "client-certificate", fields.client_certificate, fields.client_certificate_data
    )
    key = _source(entry, "client-key", fields.client_key, fields.client_key_data)
    if bool(certificate) != bool(key):
        cause = "client-certificate and client-key need each other, and one of them is missing"
        raise entry.error(cause)
    if fields.token and not is_token(fields.token):
        raise entry.error("token has characters that no token has")
    token = Source(Secret(fields.token), entry.path(fields.token_file))
    if token.path and not token.data:
        _file_text(entry, "tokenFile", token.path)
    plugin = None if fields.exec is None else _plugin(entry, fields.exec)
    # As with kubectl, the plugin is not run if the entry has a token or a certificate.
    return User(
        name=entry.name,
        token=token,
        certificate=certificate,
        key=key,
        plugin=None if token or certificate else plugin,
    )


def check_pair(cluster: Cluster, user: User, entry: Entry) -> None:
    """Refuse to send a credential over an unencrypted connection."""
    if cluster.encrypted or user.anonymous or is_loopback(urlsplit(cluster.server).hostname or ""):
        return
    cause = (
        f"the server is plain http and user {user.name!r} would send its credentials unencrypted"
    )
    raise entry.error(cause, fix="use https")


def check_namespace(entry: Entry, name: str) -> str:
    """A name that can stand in a path; `default` if it was left out."""
    if name and not _LABEL.fullmatch(name):
        raise entry.error("namespace is not a name that Kubernetes allows")
    return name or "default"


def is_token(text: str) -> bool:
    """Whether a text can be a bearer token: something, visible ASCII, no spaces."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _server(entry: Entry, text: str) -> str:
    """The server's address without a slash at its end; the address is in no error message."""
    fix = "write it as https://host:port"
    if not text:
        raise entry.error("it has no server", fix=fix)
    parts = _split(text)
    if parts is None or parts.scheme not in {"http", "https"} or not _is_host(parts.hostname or ""):
        raise entry.error("server is not an http or https URL", fix=fix)
    if parts.username is not None or parts.password is not None:
        raise entry.error("server holds a user name or a password", fix=USE_PLUGIN)
    if parts.query or parts.fragment or not text.isascii() or not text.isprintable() or " " in text:
        raise entry.error("server has characters or parts that do not belong there", fix=fix)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _split(text: str) -> SplitResult | None:
    """The parts of a URL; the library's errors quote it, so they are not passed on."""
    try:
        parts = urlsplit(text)
        return None if parts.port == 0 else parts
    except ValueError:
        return None


def _is_host(name: str) -> bool:
    if _HOST.fullmatch(name):
        return True
    try:
        return ipaddress.ip_address(name).version == 6
    except ValueError:
        return False


def _plugin(entry: Entry, fields: _Exec) -> Plugin:
    if not fields.command:
        raise entry.error("exec has no command")
    if fields.api_version not in EXEC_VERSIONS:
        fix = f"set it to {EXEC_VERSIONS[0]}; update a plugin that does not support it"
        raise entry.error("exec.apiVersion is not supported", fix=fix)
    mode = fields.interactive_mode
    if not mode and fields.api_version == EXEC_VERSIONS[1]:
        mode = "IfAvailable"  # the older version had no such field
    if mode not in INTERACTIVE_MODES:
        fix = "set it to Never or IfAvailable"
        raise entry.error("exec.interactiveMode is missing or unknown", fix=fix)
    if mode == "Always":
        cause = (
            "exec.interactiveMode is Always, and a daemon has no terminal for a plugin's prompts"
        )
        raise entry.error(cause, fix="use a plugin or an account that needs no terminal")
    for variable in fields.env:
        if not variable.name or "=" in variable.name:
            raise entry.error("exec.env has a variable without a usable name")
    return Plugin(
        command=entry.path(fields.command) if "/" in fields.command else fields.command,
        api_version=fields.api_version,
        args=tuple(Secret(arg) for arg in fields.args),
        env=tuple((variable.name, Secret(variable.value)) for variable in fields.env),
        install_hint=fields.install_hint,
        provide_cluster_info=fields.provide_cluster_info,
    )


def _source(entry: Entry, field: str, path: str, data: str) -> Source:
    text = _pem(entry, field, data)
    if text and path:
        raise _both(entry, field)
    if path:
        _file_text(entry, field, entry.path(path))
    return Source(Secret(text), entry.path(path))


def _both(entry: Entry, field: str) -> ConfigError:
    return entry.error(f"{field} and {field}-data are both set", fix="keep one of them")


def _pem(entry: Entry, field: str, data: str) -> str:
    """The PEM text of a `…-data` field."""
    try:
        text = base64.b64decode("".join(data.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = " "
    if text and "-----BEGIN " not in text:
        raise entry.error(f"{field}-data is not PEM in base64")
    return text


def _file_text(entry: Entry, field: str, path: str) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        why = file_problem(error)
    raise entry.error(f"{field}: {path} {why}", fix="check the path and its permissions")


def _check_authority(entry: Entry, pem: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise entry.error("certificate-authority holds no usable certificate") from None


def read_text(path: str) -> str:
    """A small text file; `OSError` or `ValueError` if that is not what it is."""
    return read_bounded(Path(path), limit=PEM_LIMIT).decode("utf-8")


def file_problem(error: OSError | ValueError) -> str:
    """What is wrong with a file, with nothing of its content."""
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror or type(error).__name__})"
    return "is not text" if isinstance(error, UnicodeError) else "is too large"
