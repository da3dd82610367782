"""Errors of a request without an answer, by what the caller may conclude.

    TransportError
    ├── NotSent          the request certainly never reached the peer: nothing happened there
    └── OutcomeUnknown   it may have been carried out: a timeout, a connection cut while waiting

The difference carries the weight of the whole dispatch design: a mint that was *not sent* may be
retried at once, one whose outcome is *unknown* must be fenced first.
"""


class TransportError(Exception):
    """No answer arrived."""


class NotSent(TransportError):
    """The request certainly never reached the peer."""


class OutcomeUnknown(TransportError):
    """The peer may or may not have carried the request out."""


# What a loop that talks to a peer survives: no answer, and the operating system's own errors.
TRANSPORT_ERRORS: tuple[type[Exception], ...] = (TransportError, OSError)
