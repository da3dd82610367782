"""The ends of a command: exit code and the exact text of tart 2.32.1.

tart prints its own errors bare and puts `Error: ` before everything else, errors of the argument parser included. A
program that drives tart recognises failures by these texts, so they are written here and nowhere else.
"""

import os


class Failure(Exception):
    """A command ends with this exit code after printing this text to stderr."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Usage(Exception):
    """The arguments are wrong: the text, the usage of the command, exit code 64."""


class NetworkDown(Exception):
    """A registry did not answer, or stopped in the middle: worth another attempt."""


def missing(name: str) -> Failure:
    """No VM of that name."""
    return Failure(f'the specified VM "{name}" does not exist', 2)


def not_running(name: str) -> Failure:
    """The VM does not run."""
    return Failure(f'VM "{name}" is not running', 2)


def already_running(name: str) -> Failure:
    """Another process runs the VM."""
    return Failure(f'VM "{name}" is already running!', 2)


def locked(name: str) -> Failure:
    """The VM cannot be removed or pushed while it runs."""
    return Failure(f'VM "{name}" is running')


def incomplete() -> Failure:
    """The VM's directory lacks files."""
    return Failure("VM is missing some of its files (config.json, disk.img or nvram.bin)")


def other(text: str) -> Failure:
    """An error that is not tart's own."""
    return Failure(f"Error: {text}")


def no_space(file: str = "disk.img") -> Failure:
    """The host's disk is full, in the words of Foundation."""
    return other(f"The file “{file}” couldn’t be saved because there isn’t enough space.")


def no_file(file: str) -> Failure:
    """A file does not exist, in the words of Foundation."""
    return other(f"The file “{file}” couldn’t be opened because there is no such file.")


def bad_status(when: str, status: int, details: str) -> Failure:
    """A registry answered with a status that was not expected."""
    quoted = details.replace("\\", "\\\\").replace('"', '\\"')
    return other(f'UnexpectedHTTPStatusCode(when: "{when}", code: {status}, details: "{quoted}")')


def unreachable_agent(cause: str) -> Failure:
    """The guest's agent does not answer."""
    return Failure(
        f"Failed to connect to the VM using its control socket: {cause},"
        " is the Tart Guest Agent running?"
    )


def say(text: str) -> None:
    """Print a line at once: a closed pipe ends this process by SIGPIPE, as it ends tart."""
    write_all(1, text.encode() + b"\n")


def complain(text: str) -> None:
    """Print a line to stderr."""
    write_all(2, text.encode() + b"\n")


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, waiting where the reader is slow."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
