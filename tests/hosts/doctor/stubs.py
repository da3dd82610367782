"""A directory with small programs that print what a case says, for the PATH of the real runner."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.hosts.doctor.cases import Case, Ran

HANG = "exec /bin/sleep 1000"


def write_programs(folder: Path, ran: Mapping[str, Ran | str]) -> Path:
    """One program for each name; it prints what belongs to its arguments, or runs that line of shell."""
    folder.mkdir(exist_ok=True)
    by_name: dict[str, list[str]] = {}
    for words, what in ran.items():
        name, _, arguments = words.partition(" ")
        line = what if isinstance(what, str) else _printing(what)
        by_name.setdefault(name, []).append(f"{shlex.quote(arguments)}) {line} ;;")
    for name, branches in by_name.items():
        text = "\n".join(["#!/bin/sh", 'case "$*" in', *branches, "*) exit 99 ;;", "esac", ""])
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def _printing(ran: Ran) -> str:
    return (
        f"printf %s {shlex.quote(ran.out)}; printf %s {shlex.quote(ran.err)} >&2; exit {ran.code}"
    )


def write_files(root: Path, files: Mapping[str, str]) -> Path:
    """Files of the machine, below another root."""
    root.mkdir(exist_ok=True)
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


def together(cases: Iterable[Case]) -> dict[str, Ran | str]:
    """The programs of several cases."""
    return {words: ran for each in cases for words, ran in each.ran.items()}
