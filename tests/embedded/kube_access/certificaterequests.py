"""Certificate requests, as a host would make them."""

import base64
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SERVING = "kubernetes.io/kubelet-serving"
USAGES = ("digital signature", "server auth")


def request_for(
    host: str,
    *,
    name: str = "",
    more_names: tuple[str, ...] = (),
    organizations: tuple[str, ...] = ("system:nodes",),
    hostnames: tuple[str, ...] = (),
    addresses: tuple[str, ...] = (),
    emails: tuple[str, ...] = (),
    signer: str = SERVING,
    usages: tuple[str, ...] = USAGES,
    **spec: Any,
) -> dict[str, Any]:
    """The object to create."""
    common_names = (name or f"system:node:{host}", *more_names)
    common = [x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common_names]
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    names: list[x509.GeneralName] = [x509.DNSName(each) for each in hostnames]
    names += [x509.IPAddress(ip_address(each)) for each in addresses]
    names += [x509.RFC822Name(each) for each in emails]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([*groups, *common]))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    wanted = {
        "request": base64.b64encode(pem).decode(),
        "signerName": signer,
        "usages": list(usages),
    }
    return {"metadata": {"name": f"of-{host}"}, "spec": wanted | spec}
