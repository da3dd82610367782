"""The law that no program compares a field for people: it is rendered, never read back.

A field whose name says that it is for people (`why`, `text`, `message`, `sentence`: an attribute, a key, a column, and
except for `text` a variable) is compared with no literal that has a word in it, in source and in SQL, be it one word. A
field that has either a code or, elsewhere, a sentence (`reason`, `error`, `fix` …) is compared with no sentence.

Tests obey the same law. They may compare what a person sees (the output of a command, a page): that has no such name.
A test of rendering itself is listed with its reason beside the law's own test.
"""

import ast
import re
from collections.abc import Collection, Iterator

from lawbook_reasons import alternatives, assignments, is_sentence_node, without_comments

FOR_PEOPLE = frozenset(("why", "text", "message", "sentence"))
MIXED = frozenset(("reason", "error", "fix", "what", "ends", "outcome", "note", "verdict", "cause"))
_PARSED = frozenset(("text",))  # as a variable: what a parser reads
_WORD = re.compile(r"[^\W\d_]{2,}")
_METHODS = frozenset(("startswith", "endswith", "find", "index", "count", "removeprefix"))
_SQL_FIELD = re.compile(
    r"(?:(?<![:\w%(])(?:\"?(?:why|text|message|sentence)\"?)|->>\s*'(?:why|text|message|sentence)')\s*\)?\s*"
    r"(?:=|<>|!=|~\*?|(?:NOT\s+)?(?:I?LIKE|IN\s*\())\s*'[^']*[A-Za-z]{2}",
    re.IGNORECASE,
)


def compared_fields(source: str, rendering: Collection[str] = ()) -> list[str]:
    """Compares no field for people with a literal, and no field that may be a sentence with one.

    `rendering` has the functions that test how something is rendered; they are not read.
    """
    tree = ast.parse(source)
    tree.body = [each for each in tree.body if getattr(each, "name", None) not in rendering]
    return [
        f"line {line}: {field} is for people; compare a reason code instead of"
        f" {ast.unparse(literal)[:60]}"
        for line, field, literal in _breaches(tree)
    ]


def compared_fields_in_sql(text: str) -> list[str]:
    """Compares no column for people with a literal."""
    bare, assigned = without_comments(text), assignments(text)
    return [
        f"line {bare.count(chr(10), 0, found.start()) + 1}: {found[0]!r}: the column is for people;"
        " compare a reason code"
        for found in _SQL_FIELD.finditer(bare)
        if not any(a <= found.start() < b for a, b in assigned)
    ]


def _breaches(tree: ast.AST) -> Iterator[tuple[int, str, ast.expr]]:
    for node in ast.walk(tree):
        for field, literals in _compared(node):
            name = _field(field)
            for literal in literals:
                if (name in FOR_PEOPLE and _has_word(literal)) or (
                    name in MIXED and is_sentence_node(literal, frozenset())
                ):
                    yield field.lineno, name, literal


def _compared(node: ast.AST) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Each operand of a comparison or a search, with what it is compared with."""
    if isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
        operands = (node.left, *node.comparators)
        for one in operands:
            for other in operands:
                if one is not other:
                    yield from _pairs(one, other)
    elif isinstance(node, ast.Match):
        patterns = [each for case in node.cases for each in ast.walk(case.pattern)]
        yield node.subject, [each.value for each in patterns if isinstance(each, ast.MatchValue)]
    elif isinstance(node, ast.Call) and node.args:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _METHODS:
            yield function.value, list(alternatives(node.args[0]))


def _pairs(one: ast.expr, other: ast.expr) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """What is compared with what: tuples element by element."""
    if isinstance(one, ast.Tuple) and isinstance(other, ast.Tuple):
        for left, right in zip(one.elts, other.elts, strict=False):
            yield from _pairs(left, right)
    else:
        yield one, list(alternatives(other))


def _field(node: ast.expr) -> str:
    """The name of an attribute, of a key or of a variable; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return "" if node.id in _PARSED else node.id
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in {"lower", "strip", "casefold"}:
            return _field(node.func.value)
        if node.func.attr == "get" and node.args:
            key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _has_word(literal: ast.expr) -> bool:
    if isinstance(literal, ast.JoinedStr):
        return any(_has_word(each) for each in literal.values)
    return (
        isinstance(literal, ast.Constant)
        and isinstance(literal.value, str)
        and bool(_WORD.search(literal.value))
    )
