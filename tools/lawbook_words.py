"""The law of plain words: no private word in a name, a docstring, a comment, a message or a document.

A reader who knows Kubernetes and GitHub Actions should understand every line. `TABLE` lists the words that need a
private explanation, each with the plain word to use instead. A word of ordinary English ("told", "room") is banned in
names only; a word or phrase that has no plain use is banned in prose as well. `folders` limits a word to the areas that
are cleaned up, or where it has no plain use.

Names are split at underscores and capitals, so `desk` is found in `FrontDesk` and `desk_of` and not in `desktop`. The
names of SQL tables and columns are frozen: strings and SQL are searched for whole words, and `blob_graves` is another.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ALL = (
    *("src/", "tests/", "benches/", "tools/", "docs/", "deploy/"),
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml"),
)
_DISPATCH = (
    *("src/runyard/dispatch/", "tests/dispatch/", "tests/recovery/"),
    *("benches/dispatch/", "benches/recovery/"),
)
# These two files consist of the banned words.
EXEMPT = frozenset({"tools/lawbook_words.py", "tests/laws/test_law_words.py"})


class Private(NamedTuple):
    """One private word (or phrase, in lower case) and its replacement."""

    word: str
    say: str
    prose: bool = False  # banned in comments, strings and documents too
    folders: tuple[str, ...] = ALL


_CLIENTS = tuple(
    f"src/runyard/{name}/"
    for name in (
        "http",
        "db",
        "github",
        "kube",
        "node",
        "pools",
        "vm",
        "telemetry",
        "blobs",
        "wire",
    )
)
_WEB = ("src/runyard/web/",)


def _areas(*names: str) -> tuple[str, ...]:
    """The folders of these packages, in the source and in the tests."""
    return tuple(f"{top}/{name}/" for top in ("src/runyard", "tests") for name in names)


_POOLS, _VM = _areas("pools"), _areas("vm")
_FLEET = _areas("node", "pools", "vm", "telemetry", "blobs", "wire", "components")
_PLATFORM = _areas(
    *("http", "db", "github", "kube", "embedded/github", "embedded/postgres", "embedded/up")
)
# Migrations and the sentences that an earlier release stored cannot be changed.
_EDITABLE = tuple(folder for folder in _PLATFORM if not folder.endswith("/db/"))
_HARNESSES = tuple(f"tests/{name}/" for name in ("node", "pools", "vm", "wire", "components"))

_KUBE_SOURCE = ("src/runyard/embedded/kube/",)
_KUBE_NAMES = (
    *_KUBE_SOURCE,
    *(f"tests/embedded/{name}/" for name in ("kube", "kube_access", "kube_http")),
    *("tests/conformance/", "benches/kube/"),
)

TABLE = (
    Private("lookout", "reflector, watcher", prose=True),
    Private("bury", "delete, record as a pending deletion", prose=True),
    Private("buried", "deleted, pending", folders=("src/runyard/xcresult/",), prose=True),
    Private("vain", "without a job, refused", prose=True),
    Private("grave", "pending deletion"),
    Private("graves", "pending deletions"),
    Private("mended", "repaired, recovered"),
    Private("clerk", "handler", prose=True),
    Private("hands and senses", "dependencies", prose=True),
    Private("speaking room", "client package", prose=True),
    Private("healed by nobody", "recovered automatically", prose=True),
    Private("put right by nobody", "recovered automatically", prose=True),
    Private("wants to hear nothing", "is rate limited, retry in N s", prose=True),
    Private("who may look", "access control", prose=True, folders=_WEB),
    Private("keeper", "shim", prose=True),
    Private("scene", "context", prose=True, folders=(*_WEB, *_PLATFORM, *_KUBE_SOURCE)),
    Private(
        "picture",
        "snapshot, graphic",
        prose=True,
        folders=(*_WEB, *_DISPATCH, *_PLATFORM, *_KUBE_SOURCE),
    ),
    Private("terms", "limits", folders=_WEB),
    Private("purse", "rate budget", prose=True),
    Private("desk", "queue, handler", prose=True),
    Private("senses", "dependencies", prose=True),
    Private(
        "told", "reported, message", prose=True, folders=(*_WEB, *_FLEET, *_PLATFORM, *_KUBE_SOURCE)
    ),
    Private(
        "tell", "report, respond", prose=True, folders=(*_WEB, *_FLEET, *_PLATFORM, *_KUBE_SOURCE)
    ),
    Private("looking", "viewing, reading", prose=True, folders=_WEB),
    Private(
        "somebody",
        "a viewer, a user",
        prose=True,
        folders=(*_WEB, *_FLEET, *_EDITABLE, *_KUBE_SOURCE),
    ),
    Private(
        "whoever",
        "a client, a user",
        prose=True,
        folders=(*_WEB, *_FLEET, *_EDITABLE, *_KUBE_SOURCE),
    ),
    Private("nobody", "no viewer, none", prose=True, folders=(*_WEB, *_FLEET, *_KUBE_SOURCE)),
    Private("outside", "dependency", folders=_WEB),
    Private("came", "arrived", folders=(*_WEB, *_CLIENTS, *_FLEET, *_KUBE_NAMES)),
    Private("farewell", "expired", folders=(*_WEB, *_PLATFORM)),
    Private("hungry", "jobs_waiting, starved", folders=(*_DISPATCH, *_POOLS)),
    Private("bell", "wakeup", folders=_DISPATCH),
    Private("noting", "recording", folders=_DISPATCH),
    Private("room", "headroom", folders=(*_DISPATCH, *_FLEET, *_PLATFORM, *_KUBE_NAMES)),
    Private("rooms", "headrooms", folders=_DISPATCH),
    Private("people", "tenants, users", folders=(*_DISPATCH, *_EDITABLE)),
    Private("wish", "request, patch", folders=(*_DISPATCH, *_PLATFORM, *_KUBE_NAMES)),
    Private("crowd", "pollers, polls", folders=_DISPATCH),
    Private("seats", "replicas, slots", folders=_DISPATCH),
    Private("said", "message, output", prose=True, folders=(*_FLEET, *_EDITABLE)),
    Private("heard", "received", prose=True, folders=(*_FLEET, *_PLATFORM, *_KUBE_SOURCE)),
    Private(
        "anybody", "a caller, a user", prose=True, folders=(*_FLEET, *_EDITABLE, *_KUBE_SOURCE)
    ),
    Private("everybody", "each caller, all", prose=True, folders=(*_FLEET, *_KUBE_SOURCE)),
    Private(
        "someone", "a caller, a user", prose=True, folders=(*_FLEET, *_PLATFORM, *_KUBE_SOURCE)
    ),
    Private(
        "stranger",
        "another process, an unauthenticated caller",
        prose=True,
        folders=(*_FLEET, *_PLATFORM),
    ),
    Private("trouble", "failure, fault", prose=True, folders=(*_FLEET, *_PLATFORM)),
    Private("judge", "verify, check", folders=(*_FLEET, *_KUBE_NAMES)),
    Private("patience", "timeout", folders=(*_FLEET, *_KUBE_NAMES)),
    Private("door", "socket, client", folders=(*_FLEET, *_PLATFORM)),
    Private("yard", "harness", folders=(*_HARNESSES, *_KUBE_NAMES)),
    Private(
        "world",
        "harness, model",
        folders=(*_areas("node", "pools", "vm", "telemetry", "blobs"), *_PLATFORM, *_KUBE_NAMES),
    ),
    Private("bench", "harness", folders=_VM),
    Private("polite", "handles-term", folders=_VM),
    Private("deaf", "ignores-term, unreachable", prose=True, folders=(*_VM, *_PLATFORM)),
    Private("setback", "failure, backoff", prose=True, folders=_POOLS),
    Private("news", "changed", folders=(*_POOLS, *_PLATFORM)),
    Private("sign of life", "heartbeat", prose=True, folders=_FLEET),
    Private("what came of", "outcome", prose=True, folders=_FLEET),
    Private("what became of", "outcome, result", prose=True, folders=_FLEET),
    Private("hear", "receive", prose=True, folders=_PLATFORM),
    Private("complaint", "error, problem", prose=True, folders=_PLATFORM),
    Private("complaints", "errors, problems", prose=True, folders=_PLATFORM),
    Private("shelter", "shared directory", folders=_PLATFORM),
    Private("hurry", "force, stop at once", folders=_PLATFORM),
    Private("nosy", "probing", folders=_PLATFORM),
    Private("mortal", "killable", folders=(*_PLATFORM, *_KUBE_NAMES)),
    Private("obey", "respect", prose=True, folders=_PLATFORM),
    Private("forgive", "reset", prose=True, folders=_PLATFORM),
    Private("book", "objects, index, record", folders=_KUBE_NAMES),
    Private("rehearsing", "dry_run", folders=_KUBE_NAMES),
    Private("seam", "inconsistent", folders=_KUBE_NAMES),
    Private("doomed", "marked_for_deletion", folders=_KUBE_NAMES),
    Private("furnish", "create", folders=_KUBE_NAMES),
    Private("helpless", "unresolvable", folders=_KUBE_NAMES),
    Private("insists", "requires", folders=_KUBE_NAMES),
    Private("neighbours", "pod_affinity", folders=_KUBE_NAMES),
    Private("struck", "removed", folders=_KUBE_NAMES),
)

_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_BREAK = r"[\s#]+"  # a phrase may be wrapped, also in a comment
_STRINGS = frozenset({tokenize.STRING, tokenize.COMMENT})


def private_words(text: str, *, path: str, table: Iterable[Private] = TABLE) -> list[str]:
    """Uses no private word: neither in the path nor in the file's names nor in its prose."""
    if path in EXEMPT:
        return []
    lower = _joined(f"{path} {text}")
    here = [each for each in table if each.word in lower and path.startswith(each.folders)]
    if not here:  # parsing takes long, and nearly every file ends here
        return []
    named = {each.word: each for each in here if " " not in each.word}
    complaints = [
        f"line 0: the path uses {part!r}; say {named[part].say}"
        for part in name_parts(path)
        if part in named
    ]
    if path.endswith(".py"):
        for line, name in _names(text):
            complaints += [
                f"line {line}: {name!r} uses the private word {part!r}; say {named[part].say}"
                for part in name_parts(name)
                if part in named
            ]
    prose = [each for each in here if each.prose]
    if prose:
        pieces = _strings(text) if path.endswith(".py") else [(1, text)]
        complaints += _in_prose(pieces, prose)
    return complaints


def name_parts(name: str) -> list[str]:
    """Return the words of an identifier or a path, in lower case."""
    return [part.lower() for part in _PARTS.findall(name)]


def _in_prose(pieces: Iterable[tuple[int, str]], table: list[Private]) -> Iterator[str]:
    say = {each.word: each.say for each in table}
    words = "|".join(_BREAK.join(map(re.escape, each.split())) for each in say)
    pattern = re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
    for line, text in pieces:
        for found in pattern.finditer(text):
            word = _joined(found[0])
            yield (
                f"line {line + text.count(chr(10), 0, found.start())}:"
                f" has the private word {word!r}; say {say[word]}"
            )


def _joined(text: str) -> str:
    """Undo the wrapping of lines, in lower case."""
    return " ".join(text.replace("#", " ").split()).lower()


def _names(source: str) -> Iterator[tuple[int, str]]:
    """Every identifier: in a syntax tree, each string that is not a literal's value."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant):
            continue
        for _, value in ast.iter_fields(node):
            for name in value if isinstance(value, list) else [value]:
                if isinstance(name, str):
                    yield getattr(node, "lineno", 0), name


def _strings(source: str) -> list[tuple[int, str]]:
    """Comments and literals; the comments of consecutive lines are one text."""
    found: list[tuple[int, str]] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _STRINGS:
            continue
        line = token.start[0]
        if token.type == tokenize.COMMENT and found and last == line - 1:
            first, text = found[-1]
            found[-1] = (first, f"{text}\n{token.string}")
        else:
            found.append((line, token.string))
        last = line if token.type == tokenize.COMMENT else 0
    return found
