"""Takes locks of files and directories without waiting."""

import fcntl


def flock(handle: int, *, shared: bool = False) -> bool:
    """Tries to take the lock of an open file; returns whether it is ours now."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
