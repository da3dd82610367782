"""Opens the input of the `xcresult` commands: bundles in directories and archives; reports bad ones.

Invariants:
- Bad input ends with exit code 2 and one line that names the path, the cause and the error's code; never
  with a traceback.
- An archive is extracted into a temporary directory that is deleted when the command ends, also by an error.
- Text of a bundle is made safe for the terminal, also in errors.
"""

import errno
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from runyard.text import harmless
from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.bundle.opening import opened
from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.errors import TooLarge, XcresultError, XcresultNotFound
from runyard.xcresult.reader.crashes import CrashReport, read_crashes
from runyard.xcresult.reader.model import Result, Wanted

STDIN = "-"
_DEFECTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
_BLOCK = 1 << 20


class BadBundle(click.ClickException):
    """The input cannot be read."""

    exit_code = 2


def name_of(path: str) -> str:
    """The name of the bundle in messages, on one line."""
    return "standard input" if path == STDIN else " ".join((Path(path).name or path).splitlines())


class Found(msgspec.Struct, frozen=True):
    """A result that was read, and its name."""

    name: str
    result: Result
    crashes: dict[str, CrashReport]
    """The digests of attached crash reports, by payload id."""


@contextmanager
def bundle(path: str, *, limits: Limits = Limits()) -> Iterator[Path]:  # noqa: B008  (frozen)
    """The bundle's directory; every error inside the context becomes one line."""
    with errors_in_one_line(path), ExitStack() as stack:
        if path != STDIN and not os.path.lexists(path):
            raise XcresultNotFound("no such file or directory")
        with _waiting(f"opening {name_of(path)}"):
            file = stack.enter_context(_stdin(limits)) if path == STDIN else Path(path)
            directory = stack.enter_context(opened(file, limits=limits))
        yield directory


def read(path: str, *, wanted: Wanted = Wanted(), processes: int = 1) -> Found:  # noqa: B008  (frozen)
    """Read a bundle."""
    with bundle(path) as directory:
        result = read_in(directory, path, wanted=wanted, processes=processes)
        return Found(name_of(path), result, read_crashes(Directory(directory), result.cases))


def read_in(
    directory: Path,
    path: str,
    *,
    wanted: Wanted = Wanted(),  # noqa: B008  (frozen)
    processes: int = 1,
) -> Result:
    """Read a bundle that is open."""
    with _waiting(f"reading {name_of(path)}"):
        return read_bundle(directory, wanted=wanted, processes=processes)


def deliver(pieces: Iterable[bytes], output: Path | None) -> None:
    """Write to standard output in pieces, as UTF-8 in every locale; or to the file, completely or not at all.

    A device or a pipe is written to directly and never replaced by a file.
    """
    try:
        if output is None or str(output) == STDIN:
            _print(pieces)
        elif output.exists() and not output.is_file():
            with output.open("wb") as file:
                file.writelines(pieces)
        else:
            _replace(output.resolve(), pieces)
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "standard output" if output is None else str(output)
        raise BadBundle(harmless(f"{name} cannot be written: {error.strerror or error}")) from None


def _print(pieces: Iterable[bytes]) -> None:
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    stream = sys.stdout.buffer
    try:
        for piece in pieces:
            stream.write(piece)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError:
        _abandon(stream)
        raise


def _abandon(stream: BinaryIO) -> None:
    """Drop buffered output, so that writing it does not fail again when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def _replace(file: Path, pieces: Iterable[bytes]) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as new:
            new.writelines(pieces)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def errors_in_one_line(path: str) -> Iterator[None]:
    """Turn every error about this bundle into one line and exit code 2."""
    name = name_of(path) if path == STDIN else path
    try:
        yield
    except XcresultError as error:
        raise _bad(name, f"{error} [{error.code}]") from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _bad(str(error.filename or name), error.strerror or str(error)) from error
    except _DEFECTS as error:
        # A defect of the reader: still one line, with what to report.
        what = f"{type(error).__name__}: {error}"
        raise _bad(name, f"the reader failed on this bundle ({what}). Please report it") from error


def _bad(name: str, what: str) -> BadBundle:
    return BadBundle(harmless(f"{name}: {what}"))


@contextmanager
def _stdin(limits: Limits) -> Iterator[Path]:
    """Copy standard input to a file: archives are read from their end."""
    with tempfile.TemporaryDirectory(prefix="runyard-xcresult-") as folder:
        file = Path(folder) / "stdin"
        if sys.stdin is None:
            raise XcresultNotFound("it is closed")
        source = sys.stdin.buffer
        with file.open("wb") as target:
            left = limits.total_bytes
            while block := source.read(_BLOCK):
                left -= len(block)
                if left < 0:
                    raise TooLarge(f"more than {limits.total_bytes} bytes (limit total_bytes)")
                target.write(block)
        yield file


@contextmanager
def _waiting(what: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # only a terminal needs it

    with Console(stderr=True).status(harmless(what)):
        yield
