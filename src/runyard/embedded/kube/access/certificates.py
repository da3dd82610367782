"""Serves certificate signing requests: created by clients, approved by users, signed by the machine's CA.

A host requests the serving certificate of its API, and a user approves. Only these are signed, requests
for `kubernetes.io/kubelet-serving`, after the checks of a real cluster: the subject is a node (`O=system:nodes`,
`CN=system:node:…`), it has at least one DNS name or IP address and names of no other kind, and it requests the
usages of a server. A request that breaks a rule after its approval is marked as failed, with the rule. Requests for
other signers can be created and approved, and wait for another signer.

The server records the user that created a request, which is immutable; conditions of an approval are never removed.
"""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from runyard.clock import Clock
from runyard.embedded.kube.access.auth import MASTERS, Action, Authorize, User
from runyard.embedded.kube.access.requested import (
    Requested,
    organizations,
    parse,
    read_request,
)
from runyard.embedded.kube.registry import Registry
from runyard.embedded.kube.resources import CERTIFICATE_REQUESTS, Object
from runyard.embedded.kube.rules import certificates as rules
from runyard.embedded.kube.status import Cause, forbidden, invalid
from runyard.embedded.kube.storage.store import Event, Record
from runyard.http.tls import Pair
from runyard.wire.instants import to_rfc3339

SERVING = "kubernetes.io/kubelet-serving"
GROUP = "certificates.k8s.io"
CLIENT = "kubernetes.io/kube-apiserver-client"
_YEAR = 365 * 86400
_USAGES = ("digital signature", "key encipherment", "server auth")
_NEEDED = ("digital signature", "server auth")


class Certificates:
    """Checks certificate requests before they are stored, and signs those that are approved."""

    def __init__(self, registry: Registry, *, clock: Clock, authority: Pair | None) -> None:
        self._registry = registry
        self._clock = clock
        self._authority = authority

    # ---- before they are stored

    def admit(
        self, user: User, new: Object, *, old: Object | None, subresource: str, authorize: Authorize
    ) -> Object:
        """Returns the request as it is to be stored; raises 403 or 422."""
        if old is None:
            return _created(user, new)
        if subresource not in ("approval", "status"):
            return {**new, "spec": old["spec"]}
        signer = str(old["spec"].get("signerName", ""))
        verb = "approve" if subresource == "approval" else "sign"
        _check_signer(user, new, signer, verb=verb, authorize=authorize)
        return self._with_conditions(new, old, approval=subresource == "approval")

    def _with_conditions(self, new: Object, old: Object, *, approval: bool) -> Object:
        """Returns the request with its new conditions; an approval changes nothing else. Raises 422."""
        given, before = _conditions(new), _conditions(old)
        if causes := rules.conditions(given, before, approval=approval):
            raise invalid(CERTIFICATE_REQUESTS, new["metadata"]["name"], causes)
        now = to_rfc3339(self._clock.now())
        status = old.get("status", {}) if approval else new.get("status", {})
        dated = {"conditions": [_dated(each, now) for each in given]} if given else {}
        return {**new, "status": {**status, **dated}}

    # ---- when they are approved

    def on_event(self, event: Event) -> None:
        """Signs an approved request."""
        record = event.new
        if event.resource is not CERTIFICATE_REQUESTS or record is None or self._authority is None:
            return
        status = record.obj.get("status", {})
        is_serving = record.obj["spec"].get("signerName") == SERVING
        if not is_serving or not _is_approved(record.obj) or status.get("certificate"):
            return
        self._registry.update(
            CERTIFICATE_REQUESTS,
            record,
            {**record.obj, "status": self._signed(record, status, self._authority)},
            subresource="status",
        )

    def _signed(self, record: Record, status: Object, authority: Pair) -> Object:
        spec = record.obj["spec"]
        try:
            parsed = parse(spec["request"])
            check_serving(read_request(spec["request"]), tuple(spec.get("usages") or ()))
            seconds = min(int(spec.get("expirationSeconds") or _YEAR), _YEAR)
            pem = _sign(parsed, authority, now=self._clock.now(), seconds=seconds)
        except ValueError as error:
            failed = {
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": str(error),
            }
            now = to_rfc3339(self._clock.now())
            return {**status, "conditions": [*status["conditions"], _dated(failed, now)]}
        return {**status, "certificate": base64.b64encode(pem).decode()}


def check_serving(wanted: Requested, usages: tuple[str, ...]) -> None:
    """Raises `ValueError` unless it is a request for a node's serving certificate."""
    if wanted.organizations != ("system:nodes",):
        raise ValueError("subject organization is not system:nodes")
    if not wanted.common_name.startswith("system:node:"):
        raise ValueError("subject common name does not begin with system:node:")
    if not wanted.dns_names and not wanted.ip_addresses:
        raise ValueError("DNS or IP subjectAltName is required")
    if wanted.emails:
        raise ValueError("Email subjectAltNames are not allowed")
    if wanted.others:
        raise ValueError("URI subjectAltNames are not allowed")
    unexpected = [each for each in usages if each not in _USAGES]
    if unexpected or any(each not in usages for each in _NEEDED):
        raise ValueError(f"usages did not match [{' '.join(_USAGES)}]")


def _created(user: User, new: Object) -> Object:
    spec = new.get("spec")
    spec = dict(spec) if isinstance(spec, dict) else {}
    name = new["metadata"]["name"]
    if causes := _request_causes(spec) + rules.spec(spec):
        raise invalid(CERTIFICATE_REQUESTS, name, causes)
    if spec["signerName"] == CLIENT and MASTERS in organizations(parse(spec["request"])):
        why = f"use of {CLIENT} signer with {MASTERS} group is not allowed"
        raise forbidden(CERTIFICATE_REQUESTS, name, why)
    made: dict[str, Any] = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        made["uid"] = user.uid
    if user.extra:
        made["extra"] = {key: [value] for key, value in user.extra}
    kept = {key: spec[key] for key in spec if key not in ("username", "groups", "uid", "extra")}
    return {**new, "spec": kept | made}


def _request_causes(spec: Object) -> list[Cause]:
    try:
        parse(spec.get("request", ""))
    except ValueError as error:
        return [Cause("spec.request", f"Invalid value: {error}")]
    return []


def _conditions(obj: Object) -> list[Object]:
    return [each for each in obj.get("status", {}).get("conditions") or () if each]


def _is_approved(obj: Object) -> bool:
    """Whether it is approved and not denied."""
    states = {each.get("type"): each.get("status") for each in _conditions(obj)}
    refused = rules.DENIED in states or rules.FAILED in states
    return states.get(rules.APPROVED) == "True" and not refused


def _check_signer(user: User, new: Object, signer: str, *, verb: str, authorize: Authorize) -> None:
    """Raises 403 unless the user may approve or sign for the signer, by its name or by its domain."""
    domain = signer.partition("/")[0] + "/*"
    actions = [
        Action(verb=verb, group=GROUP, plural="signers", name=name) for name in (signer, domain)
    ]
    if not any(authorize(user, action).allowed for action in actions):
        what = "approve" if verb == "approve" else "sign"
        why = f'user not permitted to {what} requests with signerName "{signer}"'
        raise forbidden(CERTIFICATE_REQUESTS, new["metadata"]["name"], why)


def _dated(condition: Object, now: str) -> Object:
    times = {"lastUpdateTime": now, "lastTransitionTime": now}
    given = {key: value for key, value in condition.items() if value}
    return times | given


def _sign(
    request: x509.CertificateSigningRequest, authority: Pair, *, now: float, seconds: int
) -> bytes:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    key: Any = serialization.load_pem_private_key(authority.key, password=None)
    moment = datetime.fromtimestamp(now, UTC)
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    builder = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(issuer.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - timedelta(minutes=5))
        .not_valid_after(min(moment + timedelta(seconds=seconds), issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
