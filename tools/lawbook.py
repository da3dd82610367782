"""The laws of this repository's Python code, each a function from a source text to complaints.

A law takes the text of one file and returns what is wrong with it, in sentences with a line number; an
empty list means that it keeps the law. They read syntax trees and tokens, never import what they judge, and hold no
state, so that each can be shown to fail on a bad sample (tests/laws does that for every one of them).
"""

import ast
import io
import re
import tokenize

MODULE_LINES = 600
FUNCTION_LINES = 80
CONSTRUCTOR_ARGUMENTS = 7

METRIC = re.compile(
    r"(?:tuist|tart_kubelet)_[a-z0-9_]+"
    r"|runyard_[a-z0-9_]+_(?:total|count|seconds|ms|bytes|percent|ratio|info|age|state)"
)
WIRE_NAME = re.compile(r"tuist\.dev/|/api/internal/")
SQL_TEXT = re.compile(
    r"\s*(?:SELECT\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s*\()",
    re.IGNORECASE,
)
SUPPRESSION = re.compile(r"#\s*(?:noqa|type:\s*ignore|ruff:\s*noqa|mypy:)", re.IGNORECASE)
REASONED = re.compile(
    r"#\s*(?:noqa:\s*[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*|type:\s*ignore\[[\w,\s-]+\])"
    r"[\s#:–—-]+(?P<reason>\S.{7,})"
)

UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def missing_docstring(source: str) -> list[str]:
    """A module that is not empty begins with a docstring."""
    tree = ast.parse(source)
    if tree.body and ast.get_docstring(tree) is None:
        return ["line 1: the module has no docstring"]
    return []


def filled_init(source: str) -> list[str]:
    """An `__init__.py` is empty: importing a package does nothing."""
    return ["line 1: an __init__ file must be empty"] if source.strip() else []


def too_long_module(source: str) -> list[str]:
    """A module with too many lines is two modules."""
    lines = source.count("\n")
    if lines > MODULE_LINES:
        return [f"line {lines}: {lines} lines, more than {MODULE_LINES}"]
    return []


def too_long_functions(source: str) -> list[str]:
    """A function with too many lines is two functions."""
    complaints = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                complaints.append(
                    f"line {node.lineno}: {node.name} has {lines} lines, more than {FUNCTION_LINES}"
                )
    return complaints


def too_many_arguments(source: str) -> list[str]:
    """Constructors with more arguments than a reader can tell apart; a struct of dependencies has none to write."""
    return [
        f"line {method.lineno}: {owner.name} takes {count} constructor arguments: group them in a struct"
        for owner in ast.walk(ast.parse(source))
        if isinstance(owner, ast.ClassDef)
        for method in owner.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        if (count := _arguments(method.args)) > CONSTRUCTOR_ARGUMENTS
    ]


def _arguments(given: ast.arguments) -> int:
    return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1  # without self


def metric_names(source: str) -> list[str]:
    """A metric's name is written in the catalogue and nowhere else."""
    return [
        f"line {line}: {text!r} looks like a metric's name; use telemetry.catalogue"
        for line, text in _strings(source, "tuist_", "tart_kubelet_", "runyard_")
        if METRIC.fullmatch(text)
    ]


def wire_names(source: str) -> list[str]:
    """A name that leaves the process is written in `wire` and nowhere else."""
    return [
        f"line {line}: {text!r} is a name of the wire; use runyard.wire"
        for line, text in _strings(source, "tuist.dev", "/api/internal")
        if WIRE_NAME.search(text)
    ]


def sql_in_python(source: str) -> list[str]:
    """A domain's SQL lives in files, one statement each."""
    return [
        f"line {line}: SQL belongs into a file of the package's sql folder"
        for line, text in _strings(source)
        if SQL_TEXT.match(text)
    ]


def prints(source: str) -> list[str]:
    """Only the command line writes to a terminal."""
    if "print" not in source and "breakpoint" not in source:
        return []
    return [
        f"line {node.lineno}: print() outside the command line"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "breakpoint"}
    ]


def real_sleeps(source: str) -> list[str]:
    """A test never waits for the clock on the wall."""
    if "sleep" not in source:
        return []
    tree = ast.parse(source)
    complaints = [
        f"line {node.lineno}: time.sleep() in a test"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "sleep"
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    ]
    complaints += [
        f"line {node.lineno}: time.sleep() in a test"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == "time"
        and any(name.name == "sleep" for name in node.names)
    ]
    return complaints


def iterated_sets(source: str) -> list[str]:
    """A set's order differs between processes, so walking over one would break replay."""
    walked = [
        node.iter
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
    ]
    return [
        f"line {walk.lineno}: iterates over a set; use sorted() or a dict"
        for walk in walked
        if isinstance(walk, ast.Set | ast.SetComp)
        or (
            isinstance(walk, ast.Call)
            and isinstance(walk.func, ast.Name)
            and walk.func.id in {"set", "frozenset"}
        )
    ]


def unreasoned_suppressions(source: str) -> list[str]:
    """Whoever silences a tool says why, on the same line."""
    return [
        f"line {line}: {comment!r} gives no reason"
        for line, comment in _comments(source, SUPPRESSION)
        if not REASONED.search(comment)
    ]


def unfinished_business(source: str) -> list[str]:
    """What is not done is in the changelog or in a decision record, not in a comment."""
    return [
        f"line {line}: {comment!r} leaves something open"
        for line, comment in _comments(source, UNFINISHED)
    ]


def _comments(source: str, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    """The comments with this pattern. Reading tokens takes long, and most files do not have it anywhere."""
    if not pattern.search(source):
        return []
    return [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and pattern.search(token.string)
    ]


def _strings(source: str, *words: str) -> list[tuple[int, str]]:
    """Every string constant that is not a docstring, with its line; none if the file has none of these words."""
    if words and not any(word in source for word in words):
        return []
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | _Function)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]
