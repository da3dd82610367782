"""Turns errors of the operating system into the driver contract's errors."""

import contextlib
import errno
from collections.abc import Iterator

from runyard.vm.contract import DriverFailed, NoSpace

FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def map_os_errors(what: str = "") -> Iterator[None]:
    """Raises `NoSpace` for a full disk and `DriverFailed` for another OSError; `what` could not be done."""
    try:
        yield
    except OSError as error:
        message = f"{what}: {error}" if what else str(error)
        raise (NoSpace if error.errno in FULL else DriverFailed)(message) from error
