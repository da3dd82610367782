"""The flags of `runyard server` for test results: where they are kept, how long, and what signs their links."""

from pathlib import Path

import click
import msgspec

from runyard.blobs.place import BadPlace, open_blobs
from runyard.cli.blobflags import BLOBS, place_of
from runyard.cli.serverfiles import BadSetting, key_of
from runyard.cli.speaking import Option
from runyard.clock import Clock
from runyard.parts.results import ResultsSetup, keys_of
from runyard.xcresult.people.settings import DAY, Keeping, Settings

_FILE = click.Path(dir_okay=False, path_type=Path)
_DAYS = click.FloatRange(0.01, 3660.0)
_GIGABYTE = 1_000_000_000

RESULTS: tuple[Option, ...] = (
    *BLOBS,
    click.option(
        "--blobs-direct",
        envvar="RUNYARD_BLOBS_DIRECT",
        type=click.Choice(["none", "uploads", "both"]),
        default="uploads",
        show_default=True,
        help="On S3: what clients exchange with it directly, by its own signed links; the rest goes through here.",
    ),
    click.option(
        "--link-key-file",
        envvar="RUNYARD_LINK_KEY_FILE",
        type=_FILE,
        multiple=True,
        help="File with 32 bytes in base64: links and tokens for test results are signed with it. Repeatable: the"
        " first signs, all are good.  [default: follows from the seal key]",
    ),
    click.option(
        "--upload-limit-gb",
        envvar="RUNYARD_UPLOAD_LIMIT_GB",
        type=click.FloatRange(0.001, 60.0),
        default=16.0,
        show_default=True,
        help="Largest result bundle that is taken.",
    ),
    click.option(
        "--keep-runs-days",
        envvar="RUNYARD_KEEP_RUNS_DAYS",
        type=_DAYS,
        default=90.0,
        show_default=True,
        help="How long test runs and their results are kept.",
    ),
    click.option(
        "--keep-attachments-days",
        envvar="RUNYARD_KEEP_ATTACHMENTS_DAYS",
        type=_DAYS,
        default=30.0,
        show_default=True,
        help="How long the files that tests left are kept.",
    ),
    click.option(
        "--keep-uploads-days",
        envvar="RUNYARD_KEEP_UPLOADS_DAYS",
        type=_DAYS,
        default=14.0,
        show_default=True,
        help="How long result bundles are kept as they were uploaded, to be processed again.",
    ),
)


class ResultFlags(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of test results."""

    blobs: str
    blobs_endpoint: str
    blobs_region: str
    blobs_credentials_file: Path | None
    blobs_direct: str
    link_key_file: tuple[Path, ...]
    upload_limit_gb: float
    keep_runs_days: float
    keep_attachments_days: float
    keep_uploads_days: float


def results_of(
    said: ResultFlags, *, public_url: str, seal_key: bytes, clock: Clock
) -> ResultsSetup | None:
    """What the flags say of test results; None if there is no place for them. `BadSetting` says what is wrong."""
    others = (said.blobs_endpoint, said.blobs_region, said.blobs_credentials_file)
    if not said.blobs:
        if any(others) or said.link_key_file:
            raise BadSetting(
                "--blobs is missing: other flags of object storage or test results are given."
                " Give --blobs s3://BUCKET/PREFIX or --blobs DIRECTORY"
            )
        return None
    place = place_of(
        said.blobs,
        endpoint=said.blobs_endpoint,
        region=said.blobs_region,
        credentials_file=said.blobs_credentials_file,
    )
    try:
        store = open_blobs(place, clock=clock)
    except BadPlace as error:
        raise BadSetting(f"--blobs: {error}") from None
    given = tuple(key_of("--link-key-file", path) for path in said.link_key_file)
    return ResultsSetup(
        blobs=store,
        keys=keys_of(seal_key, given),
        settings=Settings(
            upload_limit=int(said.upload_limit_gb * _GIGABYTE),
            direct_uploads=said.blobs_direct in ("uploads", "both"),
            direct_downloads=said.blobs_direct == "both",
            public_url=public_url,
            keeping=Keeping(
                runs=said.keep_runs_days * DAY,
                attachments=said.keep_attachments_days * DAY,
                uploads=said.keep_uploads_days * DAY,
            ),
        ),
    )
