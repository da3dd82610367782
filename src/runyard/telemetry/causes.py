"""What an exception is about, when tasks were running side by side."""


def first_of(error: BaseException) -> BaseException:
    """The first exception of a group, however deep; an exception that is no group is itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
