"""The law that no program matches a sentence: reasons are codes, text is for people.

A *sentence* is a literal in which a space separates two words. Sentences may be shown, logged and documented; comparing
one makes its wording part of the program. These functions find, in Python and in SQL, where a value is compared with a
sentence, searched for one, looked up among sentences, or tested for beginning or ending with one. The sentence may be
an f-string, a constant of this module or of an imported one, or a member of a constant collection.

Texts that another program defines and never rewords (the first line of a PEM file, an HTTP status line, the output of a
tool) are listed with their reason in `FOREIGN`. `lawbook_reason_fields` has the law for single words.
"""

import ast
import re
from collections.abc import Iterator, Mapping

SENTENCE = re.compile(r"[^\W\d_]{2,}[,;:.!]? (?:[^\W\d_]|%)")
FOREIGN = (
    re.compile(r"-----(?:BEGIN|END) "),  # PEM
    re.compile(r"Failed to connect to the VM using|VMs exceeds the system limit"),  # tart
)
_WORD = re.compile(r"[^\W\d_]{2,}")
_METHODS = frozenset(
    (
        *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"),
        *("find", "rfind", "index", "rindex", "count", "split", "rsplit"),
    )
)
_PATTERNS = frozenset(
    ("match", "fullmatch", "search", "compile", "findall", "finditer", "sub", "subn", "split")
)
_ENGINES = frozenset(("re", "regex", "re2"))
_LOOKUPS = frozenset(("get", "pop", "setdefault"))
_COLLECTIONS = frozenset(("frozenset", "set", "tuple", "list", "dict", "MappingProxyType"))
_ENUMS = frozenset(("StrEnum", "Enum"))

Known = Mapping[str, frozenset[str]]
"""For each module, the names of its constants that hold a sentence."""

_SQL_QUOTED = r"'(?:[^']|'')*'"
_SQL_MATCH = re.compile(
    r"(?:\b(?:NOT\s+)?(?:I?LIKE|SIMILAR\s+TO)\b|(?<![<>:=!])=(?!>)|<>|!=|(?<![@<>])~\*?"
    r"|\bWHEN\b|\bIN\s*\((?:\s*" + _SQL_QUOTED + r"\s*,)*"
    r"|\b(?:starts_with|strpos|position|regexp_match|regexp_like|split_part)\s*\([^()]*?)"
    r"\s*(" + _SQL_QUOTED + ")",
    re.IGNORECASE,
)
_SQL_SET = re.compile(
    r"\bSET\b(?:(?!\bWHERE\b|\bFROM\b|\bRETURNING\b).)*", re.IGNORECASE | re.DOTALL
)
_SQL_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def is_sentence(text: str) -> bool:
    """Return whether a literal is a sentence of ours."""
    return bool(SENTENCE.search(text)) and not any(each.search(text) for each in FOREIGN)


def matched_sentences(source: str, known: Known | None = None) -> list[str]:
    """Compares, searches or enumerates no sentence. `known` has the constants of other modules."""
    tree = ast.parse(source)
    constants = _own_constants(tree) | _imported_constants(tree, known or {})
    complaints = [
        f"line {node.lineno}: compares with the sentence {ast.unparse(node)[:80]}; use a reason code"
        for node in matched(tree)
        if is_sentence_node(node, constants)
    ]
    complaints += [
        f"line {value.lineno}: the enum's value {value.value!r} is a sentence; use a slug"
        for value in _enum_values(tree)
        if isinstance(value.value, str) and is_sentence(value.value)
    ]
    return complaints


def matched_sentences_in_sql(text: str) -> list[str]:
    """Compares no column with a sentence."""
    bare, assigned = without_comments(text), assignments(text)
    return [
        f"line {bare.count(chr(10), 0, found.start(1)) + 1}: matches the sentence {found[1]};"
        " store and compare a reason code"
        for found in _SQL_MATCH.finditer(bare)
        if is_sentence(found[1]) and not any(a <= found.start() < b for a, b in assigned)
    ]


def without_comments(text: str) -> str:
    """SQL with its comments left out and its lines where they were."""
    return _SQL_COMMENT.sub(_blank, text)


def assignments(text: str) -> list[tuple[int, int]]:
    """Where in `without_comments(text)` an equals sign assigns: the SET clauses."""
    return [found.span() for found in _SQL_SET.finditer(without_comments(text))]


def sentence_constants(source: str) -> frozenset[str]:
    """Return the names of a module's constants that hold a sentence."""
    return _own_constants(ast.parse(source))


def matched(tree: ast.AST) -> Iterator[ast.expr]:
    """Every expression that another value is compared with, searched for or looked up in."""
    patterns = _names_of_re(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if not isinstance(node.ops[0], ast.Is | ast.IsNot):
                for operand in (node.left, *node.comparators):
                    yield from alternatives(operand)
        elif isinstance(node, ast.MatchValue):
            yield node.value
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            yield from _keys(node.value)
        elif isinstance(node, ast.Call):
            yield from _searched_for(node, patterns)


def _searched_for(call: ast.Call, patterns: frozenset[str]) -> Iterator[ast.expr]:
    """What a call of a method of str or dict, or of a function of `re`, searches for or looks up in."""
    function = call.func
    if isinstance(function, ast.Name):
        searches = function.id in patterns
    elif isinstance(function, ast.Attribute):
        of_re = isinstance(function.value, ast.Name) and function.value.id in patterns
        searches = function.attr in (_PATTERNS if of_re else _METHODS)
        if function.attr in _LOOKUPS:
            yield from _keys(function.value)
    else:
        return
    if searches:
        for argument in call.args[:1]:
            yield from alternatives(argument)


def _keys(collection: ast.expr) -> Iterator[ast.expr]:
    """What a lookup compares its key with: the keys of a literal dict, or those of a constant."""
    if isinstance(collection, ast.Dict):
        yield from alternatives(collection)
    elif isinstance(collection, ast.Name | ast.Attribute):
        yield ast.copy_location(
            ast.Subscript(collection, ast.Constant(value=...), ast.Load()), collection
        )


def alternatives(operand: ast.expr) -> Iterator[ast.expr]:
    """The operand, or the members of a literal collection: its elements, or the keys of a dict."""
    if isinstance(operand, ast.Call) and _called(operand) in _COLLECTIONS:
        for argument in operand.args[:1]:
            yield from alternatives(argument)
    elif isinstance(operand, ast.Tuple | ast.List | ast.Set):
        yield from operand.elts
    elif isinstance(operand, ast.Dict):
        yield from (key for key in operand.keys if key is not None)
    else:
        yield operand


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_sentence_node(node: ast.expr, constants: frozenset[str]) -> bool:
    """Return whether an expression is a sentence, or the name of a constant that holds one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and is_sentence(node.value)
    if isinstance(node, ast.JoinedStr):
        return _is_sentence_formatted(node)
    if isinstance(node, ast.Name | ast.Attribute):
        return ast.unparse(node) in constants
    if isinstance(node, ast.Subscript):
        return f"{ast.unparse(node.value)}[]" in constants
    return False


def _is_sentence_formatted(node: ast.JoinedStr) -> bool:
    """Return whether an f-string is a sentence whatever is put into it: two words are its own."""
    own = [
        each.value
        for each in node.values
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    if any(is_sentence(part) for part in own):
        return True
    whole = "".join(
        str(each.value) if isinstance(each, ast.Constant) else "xx" for each in node.values
    )
    return is_sentence(whole) and sum(len(_WORD.findall(part)) for part in own) > 1


def _own_constants(tree: ast.Module) -> frozenset[str]:
    """The constants of a module and of its classes that hold a sentence; a dict also as `NAME[]`."""
    found: set[str] = set()
    for prefix, body in (("", tree.body), *_class_bodies(tree)):
        for node in body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            if prefix and isinstance(node.value, ast.Tuple):
                continue  # a member of an enum of codes: its slug and its template
            if any(is_sentence_node(each, frozenset()) for each in alternatives(node.value)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {prefix + each.id for each in targets if isinstance(each, ast.Name)}
                found |= names
                if _is_mapping(node.value):
                    found |= {f"{name}[]" for name in names}
    return frozenset(found)


def _class_bodies(tree: ast.Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Each class, with the prefix of its attributes."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield f"{node.name}.", node.body


def _is_mapping(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return any(_is_mapping(each) for each in value.args[:1])
    return isinstance(value, ast.Dict)


def _imported_constants(tree: ast.Module, known: Known) -> frozenset[str]:
    """The constants of other modules, as this module names them: `NAME` or `module.NAME`."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                local = alias.asname or alias.name
                theirs = known.get(node.module or "", frozenset())
                found |= {
                    local + name.removeprefix(alias.name)
                    for name in theirs
                    if re.split(r"[.\[]", name)[0] == alias.name
                }
                module = known.get(f"{node.module}.{alias.name}", frozenset())
                found |= {f"{local}.{name}" for name in module}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found |= {
                    f"{alias.asname or alias.name}.{name}"
                    for name in known.get(alias.name, frozenset())
                }
    return frozenset(found)


def _names_of_re(tree: ast.AST) -> frozenset[str]:
    """The names under which a module has `re` and those functions of it that take a pattern."""
    found = {"re"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.asname or each.name for each in node.names if each.name in _ENGINES}
        elif isinstance(node, ast.ImportFrom) and node.module in _ENGINES:
            found |= {each.asname or each.name for each in node.names if each.name in _PATTERNS}
    return frozenset(found)


def _enum_values(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {
            each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "")
            for each in node.bases
        }
        if bases & _ENUMS:
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant):
                    yield item.value


def _blank(match: re.Match[str]) -> str:
    return "\n" * match.group(0).count("\n")
