"""The flags of `runyard server` for test results: storage, retention, and keys for links."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from runyard.cli.blobflags import BLOBS, location_of
from runyard.cli.options import BadSetting, NumberRange, Option
from runyard.cli.serverfiles import key_of

if TYPE_CHECKING:
    from runyard.clock import Clock
    from runyard.components.results import ResultsSetup

_FILE = click.Path(dir_okay=False, path_type=Path)
_DAYS = NumberRange(0.01, 3660.0)
_GIGABYTE = 1_000_000_000

RESULTS: tuple[Option, ...] = (
    *BLOBS,
    click.option(
        "--blobs-direct",
        envvar="RUNYARD_BLOBS_DIRECT",
        type=click.Choice(["none", "uploads", "both"]),
        default="uploads",
        show_default=True,
        help="With S3: what clients transfer directly, through signed links; the rest goes through this server.",
    ),
    click.option(
        "--link-key-file",
        envvar="RUNYARD_LINK_KEY_FILE",
        type=_FILE,
        multiple=True,
        help="File with a key (32 bytes in base64) that signs links and tokens for test results. Repeatable: the"
        " first signs, all are accepted.  [default: derived from the seal key]",
    ),
    click.option(
        "--upload-limit-gb",
        envvar="RUNYARD_UPLOAD_LIMIT_GB",
        type=NumberRange(0.001, 60.0),
        default=16.0,
        show_default=True,
        help="Largest result bundle that is accepted.",
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
        help="How long attachments of tests are kept.",
    ),
    click.option(
        "--keep-uploads-days",
        envvar="RUNYARD_KEEP_UPLOADS_DAYS",
        type=_DAYS,
        default=14.0,
        show_default=True,
        help="How long uploaded bundles are kept; until then a run can be processed again.",
    ),
)


class ResultFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Options of test results."""

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
    said: ResultFlags, *, public_url: str, seal_key: bytes, clock: "Clock"
) -> "ResultsSetup | None":
    """The configuration of test results; None without --blobs. Raises `BadSetting`."""
    others = (said.blobs_endpoint, said.blobs_region, said.blobs_credentials_file)
    if not said.blobs:
        if any(others) or said.link_key_file:
            raise BadSetting(
                "--blobs is missing: other flags of object storage or test results are given."
                " Give --blobs s3://BUCKET/PREFIX or --blobs DIRECTORY"
            )
        return None
    from runyard.blobs.location import BadLocation
    from runyard.blobs.opening import open_blobs
    from runyard.components.results import ResultsSetup, keys_of
    from runyard.xcresult.rest.settings import DAY, Retention, Settings

    place = location_of(
        said.blobs,
        endpoint=said.blobs_endpoint,
        region=said.blobs_region,
        credentials_file=said.blobs_credentials_file,
    )
    try:
        store = open_blobs(place, clock=clock)
    except BadLocation as error:
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
            retention=Retention(
                runs=said.keep_runs_days * DAY,
                attachments=said.keep_attachments_days * DAY,
                uploads=said.keep_uploads_days * DAY,
            ),
        ),
    )
