"""Finds the sources of `runyard xcresult show` and `coverage`: the files of the checkout, and the URL to read them."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from runyard.cli.xcresultinput import BadBundle
from runyard.proc import ProcError, run
from runyard.text import harmless
from runyard.xcresult.formats.sources import Sources

FORMS = ("junit", "markdown", "github")
"""The formats of `show` with paths of source files."""
_SECONDS = 30.0
_BYTES = 256 << 20
_FILES = 500_000
"""Most files of a directory that is not a checkout of git."""


def sources(
    form: str,
    *,
    root: str,
    checkout: Path | None,
    url: str | None,
    environment: Mapping[str, str],
    forms: tuple[str, ...] = FORMS,
) -> Sources:
    """The sources by the options, and by the variables of GitHub Actions for options that are missing."""
    if form not in forms:
        if checkout is not None:
            raise click.UsageError(
                f"--checkout is for the formats {', '.join(forms)}, not for {form}"
            )
        return Sources(root=root)
    workspace = environment.get("GITHUB_WORKSPACE", "")
    if checkout is not None and not checkout.is_dir():
        raise BadBundle(
            harmless(f"--checkout {checkout} is not a directory; give that of the repository")
        )
    if checkout is None and workspace and Path(workspace).is_dir():
        checkout = Path(workspace)
    return Sources(
        root=root,
        files=files_of(checkout) if checkout is not None else frozenset(),
        url=_commit_url(environment) if url is None else url,
    )


def files_of(checkout: Path) -> frozenset[str]:
    """The files of the repository that git knows; those of the directory if it is not a checkout of git."""
    command = ("git", "-C", str(checkout), "ls-files", "-z", "--full-name", "--", ":/")
    try:
        done = asyncio.run(run(command, timeout=_SECONDS, limit=_BYTES))
    except ProcError:
        return _walked(checkout)
    if done.code != 0:  # not a checkout, or one of another user
        return _walked(checkout)
    names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    return frozenset(name for name in names if name)


def _walked(directory: Path) -> frozenset[str]:
    found: set[str] = set()
    for name in _files(directory):
        if len(found) == _FILES:
            break
        found.add(name)
    return frozenset(found)


def _files(directory: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            yield (Path(parent) / name).relative_to(directory).as_posix()


def _commit_url(environment: Mapping[str, str]) -> str:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA")
    server, repository, commit = (environment.get(name, "") for name in names)
    return f"{server}/{repository}/blob/{commit}" if server and repository and commit else ""
