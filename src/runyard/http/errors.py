"""Errors of a request without an answer, by what the caller may conclude.

    TransportError
    ├── NotSent          the request certainly never reached the peer: nothing happened there
    └── OutcomeUnknown   it may have been carried out: a timeout, a connection cut while waiting

Dispatch depends on the difference: a mint that was *not sent* may be retried at once, one whose
outcome is *unknown* must be fenced first.
"""


class TransportError(Exception):
    """No answer arrived."""


class NotSent(TransportError):
    """The request certainly never reached the peer."""


class OutcomeUnknown(TransportError):
    """The peer may or may not have carried the request out."""


# Errors after which a loop that calls a peer goes on: no answer, and errors of the operating system.
TRANSPORT_ERRORS: tuple[type[Exception], ...] = (TransportError, OSError)
