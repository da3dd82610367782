"""What can go wrong with a service, by what its user can do about it.

ServiceError
├── NoManager      launchd or systemd does not answer this user; the message says how to get a session
├── CommandFailed  one of its commands failed; the message has its words
└── DidNotStay     the program did not start, or ended again; what was there before runs again
"""


class ServiceError(Exception):
    """A service could not be changed or read; `said` is the end of the program's log, if that explains it."""

    said: tuple[str, ...] = ()


class NoManager(ServiceError):
    """There is no service manager for this user."""


class CommandFailed(ServiceError):
    """A command of the service manager failed, or took too long."""


class DidNotStay(ServiceError):
    """The service's program did not stay alive."""


class NotWritable(ServiceError):
    """A file of the service cannot be written."""
