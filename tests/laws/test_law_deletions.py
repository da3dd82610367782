"""Nothing in the dispatch room deletes a Pod, an account or a registration but the one safe way."""

import ast
from pathlib import Path

import pytest

import runyard.dispatch

ROOM = Path(next(iter(runyard.dispatch.__path__)))
ALLOWED = "recovery/safe_delete.py"
CALLS = ("delete", "delete_runner", "delete_all", "evict")


def deletions(source: str) -> list[str]:
    """Calls of `x.delete(…)` and the like, except those that go to the safe way (`deleter`)."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in CALLS and "deleter" not in ast.unparse(node.func.value):
            found.append(ast.unparse(node.func))
    return found


def test_only_the_safe_way_deletes() -> None:
    found = {
        path.relative_to(ROOM).as_posix(): calls
        for path in sorted(ROOM.rglob("*.py"))
        if (calls := deletions(path.read_text("utf-8")))
    }
    assert list(found) == [ALLOWED], found
    assert sorted(set(found[ALLOWED])) == ["self._github.delete_runner", "self._kube.delete"]


@pytest.mark.parametrize(
    "code", ["await kube.delete(PODS, 'x')", "self._github.delete_runner(scope, 1)"]
)
def test_the_law_would_notice(code: str) -> None:
    assert deletions(f"async def work(self):\n    {code}\n")
    assert not deletions("async def work(self):\n    await self._deleter.delete_runner()\n")
