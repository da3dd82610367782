"""The reason codes of test results: why an upload yielded to others, or an attempt to process a run had no results.

Slugs are stored with a run and its attempts, counted in metrics and served over REST: they never change. Templates may.
`message` is a text of another program or of an exception.

`ATTEMPTS` renders what a run and an attempt store.
"""

from runyard.wire.reasons import Catalogue, Code


class Unprocessed(Code):
    """Why an attempt ended without results; stored with the attempt and, if it was the last one, with the run."""

    # the bundle can never be read
    BUNDLE_INVALID = "bundle-invalid", "{message}"
    XCRESULT_NOT_FOUND = "xcresult-not-found", "{message}"
    UNSUPPORTED_FORMAT = "unsupported-format", "{message}"
    TOO_LARGE = "too-large", "{message}"
    NO_TESTS = "no-tests", "the bundle contains no test module"

    # a limit
    DOWNLOAD_TIMEOUT = "download-timeout", "not downloaded within {limit:g} s"
    READ_TIMEOUT = "read-timeout", "not read within {limit:g} s"
    CPU_TIME_EXCEEDED = "cpu-time-exceeded", "the limit of processor time is exceeded"
    TIMEOUT = "timeout", "{message}"
    MEMORY_EXCEEDED = (
        "memory-exceeded",
        "reading the bundle takes more than {limit:d} bytes of memory",
    )
    OUT_OF_MEMORY = "out-of-memory", "{message}"
    NO_SPACE_FOR_UPLOAD = (
        "no-space-for-upload",
        "the upload has {size:d} bytes, the scratch {free:d} free",
    )
    NO_SPACE_FOR_BUNDLE = (
        "no-space-for-bundle",
        "the bundle takes about {size:d} bytes, the scratch has {free:d} free",
    )
    NO_SPACE = "no-space", "{message}"

    # a dependency
    UPLOAD_MISSING = (
        "upload-missing",
        "the upload does not exist: it was never completed, or was deleted",
    )
    STORAGE_UNAVAILABLE = "storage-unavailable", "{message}"
    STORAGE_REFUSED = "storage-refused", "{message}"
    DATABASE = "database", "{message}"
    IO_ERROR = "io-error", "{message}"

    # the worker and its child process
    READER_CRASHED = "reader-crashed", "the child process died of {signal}"
    READER_EXITED = "reader-exited", "the child process exited with {status:d}: {message}"
    WORKDIR_GONE = "workdir-gone", "another process swept the workdir"
    RELEASED = "released", "its worker was stopped"
    WORKER_LOST = "worker-lost", "{owner} sent no heartbeat until the lease expired"
    DEFECT = "defect", "{message}"


class Yielded(Code):
    """Why an upload through the server got no slot, or lost it to another one."""

    UPLOAD_SLOWEST = (
        "upload-slowest",
        "others wait, and the upload arrived at {rate:.0f} bytes per second, less than {least:.0f}",
    )
    UPLOAD_DISPLACED = (
        "upload-displaced",
        "another client waits, and this one had {held:d} uploads against its {other:d}",
    )
    UPLOAD_NOT_STARTED = "upload-not-started", "no slot for the upload was free within {wait:.0f} s"
    UPLOADS_FULL = "uploads-full", "{waiting:d} uploads wait already"


LACKS_SPACE = (
    Unprocessed.NO_SPACE_FOR_UPLOAD,
    Unprocessed.NO_SPACE_FOR_BUNDLE,
    Unprocessed.NO_SPACE,
)
STORAGE_FAILED = (Unprocessed.STORAGE_UNAVAILABLE, Unprocessed.STORAGE_REFUSED)

ATTEMPTS = Catalogue(Unprocessed)
