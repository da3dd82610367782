"""Checks flags and makes the Kubernetes client, for commands that run a component on a cluster.

Invariant: a bad value is one line that names the flag, the cause and the fix, and nothing is started.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from runyard.cli.options import BadSetting
from runyard.clock import Clock
from runyard.kube.auth import AuthTransport
from runyard.kube.config import ConfigError
from runyard.kube.connect import connect
from runyard.kube.kubeconfig import find_config

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def kubernetes_name(flag: str, value: str) -> str:
    """A name that Kubernetes allows, or `BadSetting`."""
    if not _NAME.fullmatch(value):
        raise BadSetting(
            f"{flag}: {value!r} is not a valid Kubernetes name. Use letters, digits and '-'"
        )
    return value


def cluster(
    kubeconfig: str, *, clock: Clock, agent: str
) -> tuple[AuthTransport, Callable[[], str]]:
    """A transport to the cluster, to be closed; and the token in its configuration, for the dispatch server.

    The server authenticates the operator by its Kubernetes token. If the configuration has none (a client certificate,
    a plugin), the token is empty and the server refuses the operator's reports; they only speed things up.
    """
    environ: Mapping[str, str] = dict(os.environ)
    try:
        found = find_config(kubeconfig, environ=environ, home=Path.home())
        transport = connect(found, clock=clock, environ=environ, agent=agent)
    except ConfigError as error:
        raise BadSetting(str(error)) from None
    source = found.user.token

    def token() -> str:
        if not source.path:
            return source.data.reveal()
        try:
            return Path(source.path).read_text(encoding="utf-8").strip()
        except OSError:
            return source.data.reveal()

    return transport, token
