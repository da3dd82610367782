"""Opens object storage at a location; a process without object storage never imports this module and obstore.

    open_blobs(Directory(path=Path("/var/lib/runyard/blobs")), clock=clock)
    open_blobs(Bucket(bucket="results", prefix="ci", region="eu-central-1"), clock=clock)

Without explicit credentials, those of the environment are used: `AWS_ACCESS_KEY_ID` and so on, or the machine's role.
Opening sends no request to the store; `location.check` sends one.
"""

import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from runyard.blobs.location import BadLocation, Bucket, Directory, Location
from runyard.blobs.store import StoredBlobs
from runyard.clock import Clock

_REQUEST, _READ = timedelta(minutes=1), timedelta(hours=2)
_RETRIES = 5


def open_blobs(location: Location, *, clock: Clock) -> StoredBlobs:
    """Open object storage at that location; makes a missing directory. Raises `BadLocation`."""
    try:
        if isinstance(location, Directory):
            location.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(location.path, os.R_OK | os.W_OK | os.X_OK):
                raise BadLocation("the directory cannot be written to. Check its permissions")
            local = LocalStore(location.path.resolve(), automatic_cleanup=True)
            return StoredBlobs(local, clock=clock)
        reads = _s3(location, within=_READ)
        return StoredBlobs(_s3(location, within=_REQUEST), reads=reads, clock=clock)
    except BadLocation:
        raise
    except OSError as error:
        raise BadLocation(f"the directory cannot be used ({error.strerror or error})") from None
    except (BaseError, ValueError) as error:
        raise BadLocation(str(error).partition("\n")[0][:200]) from None


def _s3(location: Bucket, *, within: timedelta) -> S3Store:
    parts = urlsplit(location.endpoint)
    if location.endpoint and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise BadLocation("the endpoint is not a URL. Write it as https://HOST")
    if parts.username is not None or parts.password is not None:
        raise BadLocation("the endpoint contains a user name or a password. Remove it")
    given: dict[str, Any] = {}
    if location.endpoint:
        given["endpoint"] = location.endpoint
    if location.region:
        given["region"] = location.region
    if location.credentials is not None:
        credentials = location.credentials
        given["access_key_id"] = credentials.access_key_id
        given["secret_access_key"] = credentials.secret_access_key
        if credentials.session_token:
            given["session_token"] = credentials.session_token
    return S3Store(
        location.bucket,
        prefix=location.prefix or None,
        virtual_hosted_style_request=not location.endpoint,
        client_options={
            "allow_http": parts.scheme == "http",
            "timeout": within,
            "connect_timeout": "10s",
        },
        retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=60)},
        **given,
    )
