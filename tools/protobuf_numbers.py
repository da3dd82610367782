"""Writes the numbers of all protobuf fields from the definitions in Kubernetes' Go modules. For maintainers; needs go.

    .venv/bin/python tools/protobuf_numbers.py 1.36.4

It reads the messages of the versions that `schema.model` and `protobuf.messages` describe, and fails if one of the
described members has no number. Fields that they do not describe are written too, so that the table is complete.
"""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runyard.embedded.kube.protobuf import messages
from runyard.embedded.kube.schema import model

HERE = Path(__file__).parent.parent
TABLE = HERE / "src/runyard/embedded/kube/protobuf/numbers.py"
PACKAGES = {  # of two messages with the same name the first one counts
    "k8s.io/apimachinery": ("pkg/apis/meta/v1",),
    "k8s.io/api": (
        "core/v1",
        "coordination/v1",
        "node/v1",
        "rbac/v1",
        "certificates/v1",
        "authentication/v1",
        "authorization/v1",
        "policy/v1",
        "autoscaling/v1",
    ),
    "k8s.io/apiextensions-apiserver": ("pkg/apis/apiextensions/v1",),
}
_MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (?:optional |repeated )?(map<.*>|[\w.]+) (\w+) = (\d+);", re.MULTILINE)
_HEAD = '''"""Numbers the fields of every message; written by tools/protobuf_numbers.py for Kubernetes {version}.

    Name = field field=number >Message ...      a field without a number has the next one; `>`: written in place
"""

NUMBERS = """
'''
_WIDTH = 100


def main() -> int:
    """Write the table."""
    version = sys.argv[1]
    found = _definitions(f"v0.{version.partition('.')[2]}")
    lines = []
    todo = [*model._lines(), *messages._table(messages.OTHERS)]  # noqa: SLF001  the notation's own tables
    written: dict[str, None] = {}
    while todo:
        name = todo.pop(0)
        if name in written:
            continue
        written[name] = None
        entries, inside = _entries(name, found)
        todo = [*inside, *todo]
        lines += _wrapped(f"{name} =", entries)
    TABLE.write_text(_HEAD.format(version=version) + "\n".join(lines) + '\n"""\n', encoding="utf-8")
    return 0


def _definitions(version: str) -> dict[str, list[tuple[str, str, int]]]:
    found: dict[str, list[tuple[str, str, int]]] = {}
    for module, packages in PACKAGES.items():
        given = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@{version}"],
            check=True,
            capture_output=True,
        )
        root = Path(json.loads(given.stdout)["Dir"])
        for package in packages:
            text = (root / package / "generated.proto").read_text(encoding="utf-8")
            for name, body in _MESSAGE.findall(text):
                fields = [
                    (kind, field, int(number)) for kind, field, number in _FIELD.findall(body)
                ]
                found.setdefault(name, fields)
    return found


def _entries(
    name: str, found: dict[str, list[tuple[str, str, int]]]
) -> tuple[list[str], list[str]]:
    """The fields of a message in the notation, and the messages that are written in place."""
    known = _members(name)
    entries: list[str] = []
    inside: list[str] = []
    numbered: dict[str, None] = {}
    last = 0
    for kind, field, number in sorted(found[name], key=lambda row: row[2]):
        shown = _spelled(_shown(name, field), known or ())
        if (
            known is not None
            and shown not in known
            and kind in found
            and _inlined(known, found[kind])
        ):
            shown = f">{kind}"
            inside.append(kind)
            numbered |= dict.fromkeys(_spelled(row[1], known) for row in found[kind])
        numbered[shown] = None
        entries.append(shown if number == last + 1 else f"{shown}={number}")
        last = number
    missing = [member for member in known or () if member not in numbered]
    if missing:
        raise SystemExit(f"{name}: no numbers for {', '.join(missing)}")
    return entries, inside


def _members(name: str) -> list[str] | None:
    """The members of a described type; None for a part of one."""
    own = messages._table(messages.OTHERS)  # noqa: SLF001  the notation's own tables
    if name in own:
        return [key for key, _ in messages._members(own[name])]  # noqa: SLF001  the notation's own tables
    if not model.known(name):
        return None
    members = [*model.named(name).codes]
    return members[2:] if members[:3] == ["kind", "apiVersion", "metadata"] else members


def _spelled(field: str, known: Sequence[str]) -> str:
    """The name of a field in JSON, which differs in case for some."""
    return next((member for member in known if member.lower() == field.lower()), field)


def _inlined(known: list[str], fields: list[tuple[str, str, int]]) -> bool:
    return any(field in known for _, field, _ in fields)


def _shown(name: str, field: str) -> str:
    """The JSON name of a field."""
    if name != "JSONSchemaProps":
        return field
    if field in ("schema", "ref"):
        return f"${field}"
    if field.startswith("xKubernetes"):
        return "x-kubernetes" + re.sub(r"[A-Z]", lambda found: f"-{found[0].lower()}", field[11:])
    return field


def _wrapped(head: str, entries: list[str]) -> list[str]:
    lines = [head]
    for entry in entries:
        if len(lines[-1]) + 1 + len(entry) > _WIDTH:
            lines.append("   ")
        lines[-1] += f" {entry}"
    return lines


if __name__ == "__main__":
    sys.exit(main())
