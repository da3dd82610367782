"""Reads the Secrets and ConfigMaps that a Pod's environment refers to.

They are read from the API when a VM is made, one by one, and kept nowhere: this host may read only those that its role
names (`runyard manifests --secret`, `--config-map`), and a list or a watch would need more.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from runyard.kube.client import Kube
from runyard.kube.errors import Forbidden, NotFound
from runyard.kube.kinds import CONFIG_MAPS, SECRETS
from runyard.node.facts import HostPod
from runyard.node.plans.sources import Source, sources_of, with_values
from runyard.node.plans.spec import UnsupportedSpec

_KINDS = {"Secret": SECRETS, "ConfigMap": CONFIG_MAPS}
_FLAGS = {"Secret": "--secret", "ConfigMap": "--config-map"}


async def with_plain_values(kube: Kube, pod: HostPod, *, node: str) -> HostPod:
    """The Pod with values instead of references in its environment; raises `UnsupportedSpec` and what `kube` raises."""
    first, *others = pod.spec.containers
    sources = sources_of(first.env, first.env_from)
    if not sources:
        return pod
    space, values, refused = pod.metadata.namespace, {}, []
    for source in sources:
        try:
            values[source] = await _read(kube, source, space)
        except Forbidden:
            refused.append(source)
    if refused:
        raise UnsupportedSpec(_not_allowed(refused, space, node))
    env = with_values(first.env, first.env_from, values)
    container = msgspec.structs.replace(first, env=env, env_from=())
    spec = msgspec.structs.replace(pod.spec, containers=(container, *others))
    return msgspec.structs.replace(pod, spec=spec)


async def _read(kube: Kube, source: Source, space: str) -> Mapping[str, str] | None:
    try:
        found = await kube.get(_KINDS[source.kind], source.name, namespace=space)
    except NotFound:
        return None
    data = found.get("data") or {}
    return data if source.kind == "ConfigMap" else _decoded(data)


def _not_allowed(refused: Sequence[Source], space: str, node: str) -> str:
    """Which sources this host may not read, and the command that allows it."""
    what = " and ".join(f"{source.kind} {source.name}" for source in refused)
    flags = " ".join(f"{_FLAGS[source.kind]} {space}/{source.name}" for source in refused)
    return (
        f"this host may not read {what} in {space}, which the Pod's environment needs; allow it:"
        f" runyard manifests --component agent --host {node} {flags} | kubectl apply -f -"
    )


def _decoded(data: dict[str, Any]) -> Mapping[str, str]:
    """The values of a Secret; those that are no text are left out, because no variable can hold them."""
    found: dict[str, str] = {}
    for key, value in data.items():
        try:
            found[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, TypeError):
            continue
    return found
