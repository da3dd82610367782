"""Options of object storage for uploads and attachments; servers and processors have the same."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from runyard.cli.options import BadSetting, Option
from runyard.cli.serverfiles import text_of

if TYPE_CHECKING:
    from runyard.blobs.location import Location

BLOBS: tuple[Option, ...] = (
    click.option(
        "--blobs",
        envvar="RUNYARD_BLOBS",
        default="",
        help="Object storage for uploads and attachments: s3://BUCKET/PREFIX, or a directory shared by all components.",
    ),
    click.option(
        "--blobs-endpoint",
        envvar="RUNYARD_BLOBS_ENDPOINT",
        default="",
        help="URL of an S3-compatible service, if it is not Amazon's.",
    ),
    click.option(
        "--blobs-region",
        envvar="RUNYARD_BLOBS_REGION",
        default="",
        help="Region of the bucket.  [default: the environment's]",
    ),
    click.option(
        "--blobs-credentials-file",
        envvar="RUNYARD_BLOBS_CREDENTIALS_FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File with AWS_ACCESS_KEY_ID=… and AWS_SECRET_ACCESS_KEY=….  [default: the environment's, or the role]",
    ),
)


def location_of(
    blobs: str, *, endpoint: str = "", region: str = "", credentials_file: Path | None = None
) -> "Location":
    """The location given by the options; raises `BadSetting`."""
    from runyard.blobs.location import BadLocation, Bucket, parse_credentials, parse_location

    try:
        location = parse_location(blobs)
    except BadLocation as error:
        raise BadSetting(f"--blobs: {error}") from None
    if not isinstance(location, Bucket):
        if endpoint or region or credentials_file is not None:
            raise BadSetting(
                "--blobs-endpoint, --blobs-region and --blobs-credentials-file are for s3://."
                " Remove them, or name a bucket"
            )
        return location
    credentials = None
    if credentials_file is not None:
        try:
            credentials = parse_credentials(text_of("--blobs-credentials-file", credentials_file))
        except BadLocation as error:
            raise BadSetting(f"--blobs-credentials-file: {error}") from None
    return Bucket(
        bucket=location.bucket,
        prefix=location.prefix,
        endpoint=endpoint,
        region=region,
        credentials=credentials,
    )
