"""Where object storage is: a directory, or a bucket on S3 or a compatible service. `opening` opens it.

Invariant: no repr and no message contains a secret.
"""

import re
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from runyard.blobs.contract import Blobs
from runyard.blobs.errors import BlobError
from runyard.blobs.keys import is_key

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_SECRETS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}


class BadLocation(ValueError):
    """The location is not usable; the message names the cause and the fix."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for S3."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return "Credentials(…)"

    __str__ = __repr__


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """A directory on this machine; replicas on other machines cannot see it."""

    path: Path


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket, and the prefix of all keys in it."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""  # empty: Amazon S3
    region: str = ""  # empty: the environment's, else us-east-1
    credentials: Credentials | None = None  # None: the environment's, or the machine's role


Location = Directory | Bucket


def parse_location(text: str) -> Location:
    """Parse `s3://bucket/prefix` or a directory; raises `BadLocation`."""
    if "://" not in text:
        if not text:
            raise BadLocation("it is empty. Write a directory or s3://bucket/prefix")
        return Directory(path=Path(text).expanduser())
    parts = urlsplit(text)
    prefix = parts.path.strip("/")
    if parts.scheme != "s3":
        raise BadLocation(
            f"{parts.scheme}:// is not known. Write a directory or s3://bucket/prefix"
        )
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise BadLocation("a user, a query or a fragment is not allowed. Write s3://bucket/prefix")
    if not _BUCKET.fullmatch(parts.netloc):
        raise BadLocation("the name of the bucket is not valid. Write s3://bucket/prefix")
    if prefix and not is_key(prefix):
        raise BadLocation("the prefix is not valid. Use a-z, 0-9, '.', '_', '=', '-' and '/'")
    return Bucket(bucket=parts.netloc, prefix=prefix)


def parse_credentials(text: str) -> Credentials:
    """Parse lines `AWS_ACCESS_KEY_ID=…`, `AWS_SECRET_ACCESS_KEY=…`; raises `BadLocation` without quoting them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name.strip() in _SECRETS:
            found[_SECRETS[name.strip()]] = value.strip().strip("\"'")
    if not found.get("access_key_id") or not found.get("secret_access_key"):
        raise BadLocation(
            "a line is missing or empty. Write AWS_ACCESS_KEY_ID=… and AWS_SECRET_ACCESS_KEY=…"
        )
    return Credentials(**found)


async def check(blobs: Blobs) -> str:
    """Why the store is not usable, or empty if it is; lists objects under a prefix that does not exist."""
    try:
        async for _ in blobs.list("runyard-check"):
            break
    except BlobError as error:
        return str(error)
    return ""
