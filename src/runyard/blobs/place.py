"""Where objects are kept: a directory, or a bucket on S3 or what speaks like it.

    open_blobs(Directory(path=Path("/var/lib/runyard/blobs")), clock=clock)
    open_blobs(Bucket(bucket="results", prefix="ci", region="eu-central-1"), clock=clock)

Without credentials given the environment's own are used: `AWS_ACCESS_KEY_ID` and so on, or the machine's role.
Nothing is asked of the store here; `check` does that, by one look.

Invariant: a secret is in no repr and in no message.
"""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from runyard.blobs.contract import Blobs
from runyard.blobs.errors import BlobError
from runyard.blobs.keys import is_key
from runyard.blobs.store import StoredBlobs
from runyard.clock import Clock

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_REQUEST, _READ = timedelta(minutes=1), timedelta(hours=2)
_RETRIES = 5
_SECRETS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
}


class BadPlace(ValueError):
    """Objects cannot be kept there; the message says why and what to write instead."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are to S3."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return "Credentials(…)"

    __str__ = __repr__


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """A directory of this machine; replicas on other machines do not see it."""

    path: Path


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket, and what keys in it begin with."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""  # empty: Amazon's own
    region: str = ""  # empty: as the environment says, else us-east-1
    credentials: Credentials | None = None  # None: the environment's, or the machine's role


Place = Directory | Bucket


def parse_place(text: str) -> Place:
    """`s3://bucket/prefix`, or a directory; raises `BadPlace`."""
    if "://" not in text:
        if not text:
            raise BadPlace("it is empty. Write a directory or s3://bucket/prefix")
        return Directory(path=Path(text).expanduser())
    parts = urlsplit(text)
    prefix = parts.path.strip("/")
    if parts.scheme != "s3":
        raise BadPlace(f"{parts.scheme}:// is not known. Write a directory or s3://bucket/prefix")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise BadPlace("only s3://bucket/prefix is understood. Give the rest by its own flags")
    if not _BUCKET.fullmatch(parts.netloc):
        raise BadPlace("there is no bucket of that name. Write s3://bucket/prefix")
    if prefix and not is_key(prefix):
        raise BadPlace("the prefix may hold a-z, 0-9, '.', '_', '=', '-' and '/'. Choose another")
    return Bucket(bucket=parts.netloc, prefix=prefix)


def parse_credentials(text: str) -> Credentials:
    """From lines `AWS_ACCESS_KEY_ID=…`, `AWS_SECRET_ACCESS_KEY=…`; raises `BadPlace`, which repeats nothing of them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name.strip() in _SECRETS:
            found[_SECRETS[name.strip()]] = value.strip().strip("\"'")
    if not found.get("access_key_id") or not found.get("secret_access_key"):
        raise BadPlace("it needs the lines AWS_ACCESS_KEY_ID=… and AWS_SECRET_ACCESS_KEY=…")
    return Credentials(**found)


def open_blobs(place: Place, *, clock: Clock) -> StoredBlobs:
    """Object storage at that place; a directory is made if it is not there. Raises `BadPlace`."""
    try:
        if isinstance(place, Directory):
            place.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(place.path, os.R_OK | os.W_OK | os.X_OK):
                raise BadPlace("the directory cannot be written to. Check its permissions")
            local = LocalStore(place.path.resolve(), automatic_cleanup=True)
            return StoredBlobs(local, clock=clock)
        reads = _s3(place, within=_READ)
        return StoredBlobs(_s3(place, within=_REQUEST), reads=reads, clock=clock)
    except BadPlace:
        raise
    except OSError as error:
        raise BadPlace(f"the directory cannot be used ({error.strerror or error})") from None
    except (BaseError, ValueError) as error:
        raise BadPlace(str(error).partition("\n")[0][:200]) from None


async def check(blobs: Blobs) -> str:
    """Why objects cannot be kept there, or nothing; by one look for objects that are not there."""
    try:
        async for _ in blobs.list("runyard-check"):
            break
    except BlobError as error:
        return str(error)
    return ""


def _s3(place: Bucket, *, within: timedelta) -> S3Store:
    parts = urlsplit(place.endpoint)
    if place.endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise BadPlace("the endpoint is not an address. Write it as https://HOST")
    if parts.username is not None or parts.password is not None:
        raise BadPlace("the endpoint holds a user name or a password. Write it without")
    given: dict[str, Any] = {}
    if place.endpoint:
        given["endpoint"] = place.endpoint
    if place.region:
        given["region"] = place.region
    if place.credentials is not None:
        who = place.credentials
        given["access_key_id"] = who.access_key_id
        given["secret_access_key"] = who.secret_access_key
        if who.session_token:
            given["session_token"] = who.session_token
    return S3Store(
        place.bucket,
        prefix=place.prefix or None,
        virtual_hosted_style_request=not place.endpoint,
        client_options={
            "allow_http": parts.scheme == "http",
            "timeout": within,
            "connect_timeout": "10s",
        },
        retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=60)},
        **given,
    )
