"""Loads the SQL of a package: one statement a file in its `sql/` folder, by name.

    statements = load("runyard.dispatch")
    await tx.one(statements.claim_job, pool=pool)  # runyard/dispatch/sql/claim_job.sql

Lines that are only a comment and a closing semicolon are removed: the server needs neither, and a
percent sign in a comment would be parsed as a parameter. A percent sign in the SQL itself is written
twice, always.
"""

from collections.abc import Iterator, Mapping
from importlib import resources


class MissingStatement(LookupError, AttributeError):
    """There is no statement of that name; the message has the package that was searched."""


class Statements(Mapping[str, str]):
    """The statements of one package by name, as items and as attributes."""

    def __init__(self, package: str, statements: Mapping[str, str]) -> None:
        self._package = package
        self._statements = dict(statements)

    def __getitem__(self, name: str) -> str:
        try:
            return self._statements[name]
        except KeyError:
            where = f"{self._package.replace('.', '/')}/sql/{name}.sql"
            raise MissingStatement(f"no such statement: {where} does not exist") from None

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._statements

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)


def load(package: str) -> Statements:
    """Read every `sql/*.sql` of a package, in the order of their names."""
    folder = resources.files(package) / "sql"
    if not folder.is_dir():
        raise MissingStatement(f"{package.replace('.', '/')}/sql does not exist")
    files = sorted((file.name, file) for file in folder.iterdir() if file.name.endswith(".sql"))
    return Statements(
        package,
        {
            name.removesuffix(".sql"): _clean(file.read_text(encoding="utf-8"))
            for name, file in files
        },
    )


def _clean(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(line for line in lines if line).rstrip("; \n")
