"""Applies the schema that a library ships, as part of the one migration history.

The job queue's tables are procrastinate's. Nothing of them is copied here: a database without them gets the schema
that the installed release ships, and all of that release's steps are recorded as applied; one that has them gets the
steps that are new since then, `pre` before the new release of runyard starts and `post` after the old one is gone, as
the library names its files.

Only files are read: the library itself is not imported.

Invariant: tables that runyard did not create are not changed, because their version is unknown.
"""

import importlib.metadata
import importlib.util
import re
from collections.abc import Collection
from pathlib import Path

import msgspec

_STEP = re.compile(r"(\d+)\.(\d+)\.(\d+)_(\d+)_(?:(pre|post)_)?.+\.sql")


class Step(msgspec.Struct, frozen=True):
    """One migration file of a library: its name in our records, and its SQL."""

    phase: str
    name: str
    sql: str
    covers: tuple[str, ...] = ()
    """Other steps that it includes; they are recorded, too."""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """A library's schema as its installed release has it."""

    name: str
    version: str
    table: str
    """A table that exists if and only if the schema does."""
    schema: str
    steps: tuple[Step, ...]
    """In the order of application."""

    def due(self, applied: Collection[str]) -> tuple[Step, ...]:
        """Return the steps that a database with these records lacks."""
        if not any(name.startswith(f"{self.name}_") for name in applied):
            done = tuple(step.name for step in self.steps)
            whole = f"{self.name}_{self.version}_pre_schema.sql"
            return (Step(phase="pre", name=whole, sql=self.schema, covers=done),)
        return tuple(step for step in self.steps if step.name not in applied)


def queue() -> Library:
    """Return the schema of the job queue's library."""
    folder = _folder("procrastinate") / "sql"
    return Library(
        name="procrastinate",
        version=importlib.metadata.version("procrastinate"),
        table="procrastinate_jobs",
        schema=(folder / "schema.sql").read_text(encoding="utf-8"),
        steps=steps("procrastinate", folder / "migrations"),
    )


def steps(library: str, folder: Path) -> tuple[Step, ...]:
    """Return the steps of a folder, by release and number; files of other names are ignored."""
    found: list[tuple[tuple[int, ...], Step]] = []
    for file in sorted(folder.iterdir()):
        match = _STEP.fullmatch(file.name)
        if match is not None:
            order = tuple(int(each) for each in match.group(1, 2, 3, 4))
            text = file.read_text(encoding="utf-8")
            step = Step(phase=match[5] or "pre", name=f"{library}_{file.name}", sql=text)
            found.append((order, step))
    return tuple(step for _, step in sorted(found, key=lambda each: (each[0], each[1].name)))


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None  # a dependency of ours
    return Path(spec.origin).parent
