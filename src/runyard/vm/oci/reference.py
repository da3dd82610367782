"""References to images in registries, as tart reads them. Pure.

    host[:port]/namespace[:tag | @sha256:hex]

A name without a slash is not a reference but a local VM. Without tag and digest the tag is `latest`. A tag may mean
another image tomorrow; a digest is the hash of one image's manifest and always means the same.

Invariants:
- What `parse` accepts tart accepts, and means the same by it. Two things are stricter here: a digest has 64
  lower-case hexadecimal digits, and a port is one that exists. Tart would fail later.
- A reference has either a tag or a digest.
- `parse(str(reference)) == reference`.
"""

import re
from urllib.parse import quote

import msgspec

from runyard.http.addresses import is_loopback

LATEST = "latest"

_LONGEST = 1024
_WORD = "[A-Za-z0-9]+"
_JOINED = rf"{_WORD}(?:[._-]{_WORD})*"
_PART = rf"{_JOINED}[._-]?"  # of a namespace; tart accepts a separator at its end
_HOST = rf"{_WORD}(?:[.-]{_WORD})*"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(rf"(?P<host>{_HOST}(?::(?P<port>[0-9]+))?)/(?P<namespace>{_PART}(?:/{_PART})*)")
_TAG = re.compile(_JOINED)


class InvalidReference(ValueError):
    """The text is not a reference; the message quotes it and names the cause and the fix."""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """One image of a registry, by tag or by digest."""

    host: str  # with the port, if one is given
    namespace: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return (
            f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"
        )

    @property
    def on_loopback(self) -> bool:
        """Whether the registry is on this machine, where plain HTTP shows nothing to others."""
        return is_loopback(self.host.partition(":")[0])

    @property
    def repository(self) -> str:
        """The reference without tag and digest: what images of one line of builds have in common."""
        return f"{self.host}/{self.namespace}"

    @property
    def directory(self) -> str:
        """Where tart keeps the image, below `cache/OCIs` of its home."""
        return f"{quote(self.host, safe='')}/{self.namespace}/{self.digest or self.tag}"

    def pinned(self, digest: str) -> "Reference":
        """The image of that digest in the same repository."""
        if not is_digest(digest):
            raise InvalidReference(
                f"{digest[:100]!r} is not a digest: write sha256: and 64 hex digits"
            )
        return Reference(host=self.host, namespace=self.namespace, digest=digest)


def is_digest(text: str) -> bool:
    """Whether the text is a digest as registries write it."""
    return _DIGEST.fullmatch(text) is not None


def is_local(name: str) -> bool:
    """Whether a name means a VM on this host and not an image of a registry."""
    return "/" not in name


def parse(text: str) -> Reference:
    """Read a reference; raises `InvalidReference`."""
    if len(text) > _LONGEST:
        raise InvalidReference(f"image {text[:60]!r}…: longer than {_LONGEST} characters")
    if is_local(text):
        raise _invalid(
            text, "no registry", "write host/namespace:tag; without a slash it is a local VM"
        )
    if "://" in text:
        raise _invalid(text, "a URL", "leave out what is before the host")
    name, at, digest = text.partition("@")
    tag = ""
    # A colon before the last slash belongs to the port.
    if (colon := name.find(":", name.rfind("/"))) >= 0:
        name, tag = name[:colon], name[colon + 1 :]
        if at:
            raise _invalid(text, "both a tag and a digest", "leave the tag out: the digest decides")
        if not _TAG.fullmatch(tag):
            raise _invalid(
                text,
                "an invalid tag",
                "use letters and digits, with single '.', '-' or '_' between them",
            )
    found = _NAME.fullmatch(name)
    if found is None:
        raise _invalid(text, "not a name", "write host[:port]/namespace[:tag] or …@sha256:digest")
    if found["port"] and not 0 < int(found["port"][:6]) < 1 << 16:
        raise _invalid(text, f"no port {found['port'][:10]}", "ports are 1 to 65535")
    if at and not is_digest(digest):
        raise _invalid(text, "an invalid digest", "write @sha256: and 64 lower-case hex digits")
    return Reference(
        host=found["host"],
        namespace=found["namespace"],
        tag="" if at else tag or LATEST,
        digest=digest,
    )


def _invalid(text: str, cause: str, fix: str) -> InvalidReference:
    return InvalidReference(f"image {text!r}: {cause}; {fix}")
