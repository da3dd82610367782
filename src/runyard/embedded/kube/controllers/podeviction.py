"""Serves the subresource `pods/eviction`, which `kubectl drain` uses.

It is a deletion with a condition on the Pod. Disruption budgets are not served, so an eviction is never delayed.
"""

from typing import Any

import msgspec

from runyard.embedded.kube.controllers import disruption
from runyard.embedded.kube.options import DeleteOptions
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import PODS
from runyard.embedded.kube.status import StatusError, bad_request, not_found
from runyard.embedded.kube.storage.store import Record
from runyard.http.messages import Response, json_response

_VERSIONS = ("policy/v1", "policy/v1beta1")
_DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def evict(registry: Registry, namespace: str, name: str, body: Any) -> Response:
    """Evicts the Pod; the query or the body may request a dry run."""
    options = _options(name, body)
    store = registry.store
    pod = store.get(PODS, namespace, name)
    if pod is None:
        raise not_found(PODS, name)
    _check(pod, options.preconditions or {})
    if options.dry_run:
        store.dry_run = True
    if not store.dry_run:
        pod = disruption.mark(registry, pod, disruption.EVICTED)
    registry.deleted(PODS, pod, options.deletion)
    return json_response(201, _DONE)


def _options(name: str, body: Any) -> DeleteOptions:
    given = body if isinstance(body, dict) else {}
    kind, version = given.get("kind", "Eviction"), given.get("apiVersion", _VERSIONS[0])
    if kind != "Eviction" or version not in _VERSIONS:
        short = str(version).rpartition("/")[2]
        why = f"converting ({short}.{kind}) to (policy.Eviction): unknown conversion"
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a Eviction: {why}')
    meta = given.get("metadata")
    if not isinstance(meta, dict) or meta.get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    try:
        return msgspec.convert(given.get("deleteOptions") or {}, DeleteOptions)
    except msgspec.ValidationError as error:
        why = f'Eviction in version "{str(version).rpartition("/")[2]}" cannot be handled as a'
        raise bad_request(f"{why} Eviction: {error}") from None


def _check(pod: Record, wanted: dict[str, str]) -> None:
    """Raises 409 if a precondition does not match the Pod."""
    given = (
        ("UID", wanted.get("uid"), pod.uid, "deleted and then recreated"),
        ("ResourceVersion", wanted.get("resourceVersion"), str(pod.version), "modified"),
    )
    for what, expected, actual, change in given:
        if expected and expected != actual:
            why = f"the {what} in the precondition ({expected}) does not match the {what} in record ({actual})"
            message = f'Operation cannot be fulfilled on Pod "{pod.name}": {why}.'
            details = {"name": pod.name, "kind": "Pod"}
            more = f"{message} The object might have been {change}"
            raise StatusError(409, "Conflict", more, details)
