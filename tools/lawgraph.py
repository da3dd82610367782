"""Which modules of the package nothing imports but tests.

A module is reached if an entry point imports it, directly or through others: at the top of a file, inside a function,
or by its full name in a string (`python -m`). What is not reached is installed with the product and does nothing.
"""

import ast
from collections.abc import Collection, Iterable, Mapping

Graph = Mapping[str, Collection[str]]


def graph(sources: Mapping[str, str]) -> Graph:
    """The modules, by name and text, with the modules that each imports or names. Empty ones are left out."""
    full = {name: text for name, text in sources.items() if text.strip()}
    return {name: _named(text).intersection(full) for name, text in full.items()}


def unreached(modules: Graph, entries: Iterable[str]) -> list[str]:
    """The modules that no entry point leads to. An entry that ends in a dot stands for every module below it."""
    seen: set[str] = set()
    left = [name for entry in entries for name in modules if _is(name, entry)]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += modules[name]
    return sorted(set(modules) - seen)


def _named(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def _is(name: str, entry: str) -> bool:
    return name.startswith(entry) if entry.endswith(".") else name == entry
