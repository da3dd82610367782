"""Finds the exception that matters in an exception group."""


def first_of(error: BaseException) -> BaseException:
    """Return the first exception of a group, however deeply nested; any other exception is returned as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
