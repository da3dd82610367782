"""Finds the kubeconfig as kubectl does, and selects one context.

The first of these that exists is used: the path that was given, the files of `KUBECONFIG`, the service account
of the Pod that we run in, `~/.kube/config`.

Several files are merged by kubectl's rule: the first file that has an entry wins, name by name, and entries of
one name are never mixed. A path that was given must exist; files of `KUBECONFIG` may be missing, unless all are.

Invariants:
- For any content of the files, the result is a usable `Config` or a `ConfigError` with the file, the entry and the
  fix.
- Nothing is run and nothing is connected to: a plugin starts with the first request.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from runyard.kube.config import Config, ConfigError, Source, User
from runyard.kube.entries import (
    Entry,
    check_namespace,
    check_pair,
    file_problem,
    read_cluster,
    read_text,
    read_user,
)
from runyard.kube.kubeyaml import FIX, read_mapping

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST_VARIABLE = "KUBERNETES_SERVICE_HOST"
PORT_VARIABLE = "KUBERNETES_SERVICE_PORT"
RESTART = "restart the Pod, or give a kubeconfig with --kubeconfig"
CHOOSE = "name one that exists, or `kubectl config use-context` one"
MOST_NAMES = 12  # of contexts, in an error message


class _Named(msgspec.Struct, frozen=True):
    name: str
    cluster: dict[str, Any] = {}
    user: dict[str, Any] = {}
    context: dict[str, Any] = {}


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    api_version: str = msgspec.field(default="v1", name="apiVersion")
    kind: str = "Config"
    current_context: str = ""
    clusters: tuple[_Named, ...] = ()
    users: tuple[_Named, ...] = ()
    contexts: tuple[_Named, ...] = ()


class _Context(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Merged:
    """The entries of all files; for each name the first file wins."""

    def __init__(self) -> None:
        self.current = ""
        self.files: list[Path] = []
        self.clusters: dict[str, Entry] = {}
        self.users: dict[str, Entry] = {}
        self.contexts: dict[str, Entry] = {}

    @property
    def source(self) -> str:
        """The paths of the files, for a message."""
        return os.pathsep.join(str(file) for file in self.files)

    def add(self, path: Path, fields: _File) -> None:
        """Add the entries of a file that no earlier file has."""
        self.files.append(path)
        self.current = self.current or fields.current_context
        for named in _unique(path, "cluster", fields.clusters):
            entry = Entry("cluster", named.name, path, named.cluster)
            self.clusters.setdefault(named.name, entry)
        for named in _unique(path, "user", fields.users):
            self.users.setdefault(named.name, Entry("user", named.name, path, named.user))
        for named in _unique(path, "context", fields.contexts):
            entry = Entry("context", named.name, path, named.context)
            self.contexts.setdefault(named.name, entry)


def find_config(
    path: str = "",
    *,
    environ: Mapping[str, str],
    home: Path,
    context: str = "",
    service_account: Path = SERVICE_ACCOUNT,
) -> Config:
    """The configuration to use; `context` overrides the current one (and is never a Pod's account)."""
    if path:
        return _from_files((Path(path),), context=context)
    if listed := [Path(item) for item in environ.get("KUBECONFIG", "").split(os.pathsep) if item]:
        present = [file for file in listed if _exists(file)]
        if not present:
            cause = f"KUBECONFIG names {os.pathsep.join(map(str, listed))}, and none of these files exists"
            raise ConfigError(cause, fix="correct the variable, or unset it")
        return _from_files(present, context=context)
    if not context and (found := in_cluster(environ, folder=service_account)) is not None:
        return found
    usual = home / ".kube" / "config"
    if _exists(usual):
        return _from_files((usual,), context=context)
    cause = f"no kubeconfig was given, KUBECONFIG is not set, this is not a Pod, and {usual} does not exist"
    raise ConfigError(cause, fix="give a kubeconfig with --kubeconfig or KUBECONFIG")


def in_cluster(environ: Mapping[str, str], *, folder: Path = SERVICE_ACCOUNT) -> Config | None:
    """Return the configuration of this Pod's ServiceAccount; None outside of a Pod or without an account."""
    host, port = environ.get(HOST_VARIABLE, ""), environ.get(PORT_VARIABLE, "")
    token = folder / "token"
    if not host or not port or not _exists(token):
        return None
    address = f"[{host}]" if ":" in host else host
    body = {"server": f"https://{address}:{port}", "certificate-authority": str(folder / "ca.crt")}
    entry = Entry("cluster", "in-cluster", folder, body)
    namespace = folder / "namespace"
    try:
        name = read_text(str(namespace)).strip() if _exists(namespace) else ""
    except (OSError, ValueError) as error:
        raise ConfigError(file_problem(error), fix=RESTART, file=str(namespace)) from None
    user = User(name="in-cluster", token=Source(path=str(token)))
    return Config(
        source=str(folder),
        cluster=read_cluster(entry),
        user=user,
        namespace=check_namespace(entry, name),
    )


def _from_files(paths: Sequence[Path], *, context: str) -> Config:
    merged = _Merged()
    for path in paths:
        merged.add(path, _file(path))
    return _select(merged, context or merged.current)


def _file(path: Path) -> _File:
    try:
        raw = read_mapping(path)
    except OSError as error:
        why = file_problem(error)
        raise ConfigError(why, fix="check the path and its permissions", file=str(path)) from None
    try:
        fields = msgspec.convert(raw, _File)
    except msgspec.ValidationError as error:  # names types and the place, never a value
        raise ConfigError(str(error), fix=FIX, file=str(path)) from None
    if fields.kind != "Config" or fields.api_version != "v1":
        cause = "is not a kubeconfig (kind Config, apiVersion v1)"
        raise ConfigError(cause, fix=FIX, file=str(path))
    return fields


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # the path is not accessible: reading it raises the error


def _unique(path: Path, kind: str, items: tuple[_Named, ...]) -> tuple[_Named, ...]:
    seen: dict[str, None] = {}
    for item in items:
        if not item.name or item.name in seen:
            cause = f"two entries have the name {item.name!r}" if item.name else "it has no name"
            raise ConfigError(cause, fix="rename or remove it", file=str(path), entry=kind)
        seen[item.name] = None
    return items


def _select(merged: _Merged, name: str) -> Config:
    if not name:
        cause = f"no context is chosen; there are {_names(merged.contexts)}"
        raise ConfigError(cause, fix=CHOOSE, file=merged.source)
    entry = merged.contexts.get(name)
    if entry is None:
        cause = f"there is no context {name!r}; there are {_names(merged.contexts)}"
        raise ConfigError(cause, fix=CHOOSE, file=merged.source)
    fields = entry.read_as(_Context)
    cluster_entry = merged.clusters.get(fields.cluster)
    user_entry = merged.users.get(fields.user)
    if cluster_entry is None:
        raise entry.error(f"there is no cluster {fields.cluster!r}")
    if user_entry is None and fields.user:
        raise entry.error(f"there is no user {fields.user!r}")
    cluster = read_cluster(cluster_entry)
    user = User() if user_entry is None else read_user(user_entry)
    check_pair(cluster, user, entry)
    return Config(
        source=merged.source,
        cluster=cluster,
        user=user,
        namespace=check_namespace(entry, fields.namespace),
        context=name,
    )


def _names(entries: Mapping[str, Entry]) -> str:
    shown = ", ".join(repr(name) for name in sorted(entries)[:MOST_NAMES])
    return shown + (", …" if len(entries) > MOST_NAMES else "") if shown else "none"
