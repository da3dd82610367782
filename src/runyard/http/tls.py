"""Certificates for the connections between a control plane and its hosts.

One machine's control plane is its own authority: it makes a key once, signs its own server certificate and
a client certificate for each host that joins. Clients and
servers trust the authority's certificate only. Contexts use TLS 1.2 or later.

Invariants:
- A private key is never in a file that others can read, not even for a moment: it is created with mode
  0600 under another name and then moved into place.
- A certificate is renewed when a third of its life is left, or when it lacks a required name. The
  authority is renewed with the same key and name: certificates that it signed stay valid, and hosts that
  know only its old certificate still trust the new ones.
- A certificate that is unreadable, of another authority or without its key is replaced, except the authority itself:
  a damaged authority is a `TlsError`, because replacing it would lock out every host.
- Time comes from the caller, in seconds since the epoch.
"""

import hashlib
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from runyard.files import write_whole

AUTHORITY_DAYS = 3650
LEAF_DAYS = 365
# Backdated: a host's clock may be behind, and this clock may be corrected by days without locking hosts out.
_SKEW = timedelta(days=7)


class TlsError(Exception):
    """Certificates cannot be used; `cause` says why and `fix` what to do."""

    def __init__(self, cause: str, fix: str) -> None:
        super().__init__(f"{cause}; {fix}")
        self.cause = cause
        self.fix = fix


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Pair(…)"  # a key must not end up in a log


class Files(msgspec.Struct, frozen=True):
    """The files of a certificate and its key; contexts read them from there."""

    certificate: Path
    key: Path


# ── making ──────────────────────────────────────────────────────────────────────────────────────────


def make_authority(
    name: str = "runyard", *, now: float, days: int = AUTHORITY_DAYS, key: bytes = b""
) -> Pair:
    """A new authority; with `key`, a new certificate for an old one."""
    private = _load_key(key) if key else _new_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, subject, private.public_key(), now=now, days=days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return Pair(_pem(builder.sign(private, hashes.SHA256())), _key_pem(private))


def issue_server(
    authority: Pair, names: Sequence[str], *, now: float, days: int = LEAF_DAYS
) -> Pair:
    """A certificate for a server that is reached under these names and addresses."""
    if not names:
        raise ValueError("a server is reached under at least one name")
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    return _issue(
        authority,
        subject,
        ExtendedKeyUsageOID.SERVER_AUTH,
        alternatives=alternatives,
        now=now,
        days=days,
    )


def issue_client(
    authority: Pair,
    name: str,
    organizations: Sequence[str] = (),
    *,
    now: float,
    days: int = LEAF_DAYS,
) -> Pair:
    """A certificate for a client: its name and, as organisations, the groups that it belongs to."""
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    return _issue(
        authority, subject, ExtendedKeyUsageOID.CLIENT_AUTH, alternatives=None, now=now, days=days
    )


def renewal_due(certificate: bytes, *, now: float) -> bool:
    """Whether less than a third of the certificate's life is left, or it has not begun: a clock was wrong."""
    loaded = _load(certificate)
    life = loaded.not_valid_after_utc - loaded.not_valid_before_utc
    moment = _moment(now)
    return moment < loaded.not_valid_before_utc or moment > loaded.not_valid_after_utc - life / 3


def only_certificate(text: bytes) -> bytes:
    """The one certificate in this PEM text, without anything around it; raises `TlsError` if there is not exactly one.

    A check of one certificate says nothing about others in the same text, and a TLS context trusts all of them: use and
    store what this returns, never the text.
    """
    try:
        found = x509.load_pem_x509_certificates(text)
    except ValueError as error:
        raise TlsError(f"not a certificate: {error}", "check the address") from error
    if len(found) != 1:
        raise TlsError(f"{len(found)} certificates instead of one", "check the address")
    return _pem(found[0])


def public_key_hash(certificate: bytes) -> str:
    """The SHA-256 of a certificate's public key, in hex; a renewed certificate with the same key has the same."""
    try:
        public = _load(certificate).public_key()
    except ValueError as error:
        raise TlsError(f"not a certificate: {error}", "check the address") from error
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(public.public_bytes(serialization.Encoding.DER, form)).hexdigest()


# ── storing ─────────────────────────────────────────────────────────────────────────────────────────


def ensure_authority(folder: Path, *, now: float, name: str = "runyard") -> Pair:
    """Return the authority of a data directory; create it the first time, and renew it when that is due."""
    files = _files(folder, "ca")
    if not files.certificate.exists() and not files.key.exists():
        authority = make_authority(name, now=now)
        _write(files, authority)
        return authority
    try:
        if not files.certificate.exists():  # the first start was interrupted between the two
            _write(files, make_authority(name, now=now, key=files.key.read_bytes()))
        authority = Pair(files.certificate.read_bytes(), files.key.read_bytes())
        known = _load(authority.certificate)
        if known.public_key() != _load_key(authority.key).public_key():
            raise ValueError("the key is of another certificate")
    except (OSError, ValueError) as error:
        fix = (
            f"restore {files.certificate} and {files.key}, or remove both to begin with a new authority:"
            " every host must then join again"
        )
        raise TlsError(f"the authority is damaged: {error}", fix) from error
    if not renewal_due(authority.certificate, now=now):
        return authority
    subject = known.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    renewed = make_authority(str(subject[0].value), now=now, key=authority.key)
    _write(files, renewed)
    return renewed


def ensure_server(
    folder: Path, authority: Pair, names: Sequence[str], *, now: float
) -> tuple[Files, bool]:
    """Return the server's certificate, and whether it is a new one (then contexts must read it again)."""
    files = _files(folder, "server")
    if _serves(files, authority, names, now=now):
        return files, False
    _write(files, issue_server(authority, names, now=now))
    return files, True


def write_pair(folder: Path, name: str, pair: Pair) -> Files:
    """Store a certificate that was issued, as `name.crt` and `name.key`."""
    files = _files(folder, name)
    _write(files, pair)
    return files


# ── using ───────────────────────────────────────────────────────────────────────────────────────────


def server_context(files: Files, *, clients: bytes = b"", required: bool = False) -> ssl.SSLContext:
    """Build the server's TLS context. With an authority as `clients`, client certificates are requested."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    read_again(context, files)
    if clients:
        context.load_verify_locations(cadata=clients.decode("ascii"))
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def client_context(authority: bytes, *, files: Files | None = None) -> ssl.SSLContext:
    """Build a client's TLS context: trusts that authority only, and presents its own certificate if it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=authority.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"not the certificate of an authority: {error}", "copy it again") from error
    if files is not None:
        read_again(context, files)
    return context


def read_again(context: ssl.SSLContext, files: Files) -> None:
    """Use the certificate as it is on disk now; connections made from now on see it."""
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        fix = f"remove {files.certificate} and {files.key} to have them made anew"
        raise TlsError(f"the certificate cannot be used: {error}", fix) from error


# ── inside ──────────────────────────────────────────────────────────────────────────────────────────


def _issue(
    authority: Pair,
    subject: x509.Name,
    purpose: x509.ObjectIdentifier,
    *,
    alternatives: x509.SubjectAlternativeName | None,
    now: float,
    days: int,
) -> Pair:
    issuer, signer = _load(authority.certificate), _load_key(authority.key)
    private = _new_key()
    builder = _builder(subject, issuer.subject, private.public_key(), now=now, days=days)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return Pair(_pem(builder.sign(signer, hashes.SHA256())), _key_pem(private))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    *,
    now: float,
    days: int,
) -> x509.CertificateBuilder:
    moment = _moment(now)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _SKEW)
        .not_valid_after(moment + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _serves(files: Files, authority: Pair, names: Sequence[str], *, now: float) -> bool:
    """Whether the server certificate on disk is good for these names for a while yet."""
    try:
        certificate = files.certificate.read_bytes()
        loaded, key = _load(certificate), _load_key(files.key.read_bytes())
        loaded.verify_directly_issued_by(_load(authority.certificate))
        found = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    known = list(found)
    return (
        loaded.public_key() == key.public_key()
        and not renewal_due(certificate, now=now)
        and all(_general_name(name) in known for name in names)
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _files(folder: Path, name: str) -> Files:
    return Files(folder / f"{name}.crt", folder / f"{name}.key")


def _write(files: Files, pair: Pair) -> None:
    """Write the key first: a certificate without its key would be issued again, a key alone is ignored."""
    files.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(files.key, pair.key)
    write_whole(files.certificate, pair.certificate, mode=0o644)


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _load(certificate: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate)


def _load_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(key, password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not an elliptic-curve key, as runyard creates them")
    return loaded


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _moment(now: float) -> datetime:
    return datetime.fromtimestamp(now, UTC)
