"""Where objects are kept, as flags: uploads and attachments of test results. Servers and processors say the same."""

from pathlib import Path

import click

from runyard.blobs.place import BadPlace, Bucket, Place, parse_credentials, parse_place
from runyard.cli.serverfiles import BadSetting, text_of
from runyard.cli.speaking import Option

BLOBS: tuple[Option, ...] = (
    click.option(
        "--blobs",
        envvar="RUNYARD_BLOBS",
        default="",
        help="Where uploads and attachments are: s3://BUCKET/PREFIX, or a directory that all parts see.",
    ),
    click.option(
        "--blobs-endpoint",
        envvar="RUNYARD_BLOBS_ENDPOINT",
        default="",
        help="URL of the S3 service, if it is not Amazon's.",
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


def place_of(
    blobs: str, *, endpoint: str = "", region: str = "", credentials_file: Path | None = None
) -> Place:
    """The place that these flags name; `BadSetting` says what is wrong with them."""
    try:
        place = parse_place(blobs)
    except BadPlace as error:
        raise BadSetting(f"--blobs: {error}") from None
    if not isinstance(place, Bucket):
        if endpoint or region or credentials_file is not None:
            raise BadSetting(
                "--blobs-endpoint, --blobs-region and --blobs-credentials-file are for s3://."
                " Remove them, or name a bucket"
            )
        return place
    credentials = None
    if credentials_file is not None:
        try:
            credentials = parse_credentials(text_of("--blobs-credentials-file", credentials_file))
        except BadPlace as error:
            raise BadSetting(f"--blobs-credentials-file: {error}") from None
    return Bucket(
        bucket=place.bucket,
        prefix=place.prefix,
        endpoint=endpoint,
        region=region,
        credentials=credentials,
    )
