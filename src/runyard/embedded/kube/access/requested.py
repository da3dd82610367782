"""Parses a certificate request: its subject and its names."""

import base64
import binascii

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

_UNREADABLE = (
    binascii.Error,
    TypeError,
    UnsupportedAlgorithm,
    InvalidSignature,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


class Requested(msgspec.Struct, frozen=True, kw_only=True):
    """The subject and the names of a certificate request."""

    common_name: str
    organizations: tuple[str, ...]
    dns_names: tuple[str, ...]
    ip_addresses: tuple[str, ...]
    emails: int  # how many names are e-mail addresses
    others: int  # how many names are of any other kind


def parse(encoded: str) -> x509.CertificateSigningRequest:
    """Decodes the request from base64 and PEM; raises `ValueError`."""
    try:
        pem = base64.b64decode(encoded, validate=True)
        parsed = x509.load_pem_x509_csr(pem)
        if not parsed.is_signature_valid:
            raise ValueError("the request is not signed with its own key")
    except _UNREADABLE as error:
        raise ValueError(f"not a certificate request: {error}") from None
    return parsed


def organizations(request: x509.CertificateSigningRequest) -> tuple[str, ...]:
    """The groups in the subject of a request."""
    return _named(request, NameOID.ORGANIZATION_NAME)


def _named(request: x509.CertificateSigningRequest, what: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(each.value) for each in request.subject.get_attributes_for_oid(what))


def read_request(encoded: str) -> Requested:
    """Parses a request; raises `ValueError` if it is invalid."""
    parsed = parse(encoded)
    common = _named(parsed, NameOID.COMMON_NAME)
    if len(common) > 1:
        raise ValueError("the subject has more than one common name")
    try:
        names = list(parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = []
    except _UNREADABLE as error:
        raise ValueError(f"the names in the request cannot be read: {error}") from None
    dns = tuple(each.value for each in names if isinstance(each, x509.DNSName))
    addresses = tuple(str(each.value) for each in names if isinstance(each, x509.IPAddress))
    emails = sum(isinstance(each, x509.RFC822Name) for each in names)
    return Requested(
        common_name=common[0] if common else "",
        organizations=organizations(parsed),
        dns_names=dns,
        ip_addresses=addresses,
        emails=emails,
        others=len(names) - len(dns) - len(addresses) - emails,
    )
