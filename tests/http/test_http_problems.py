"""Every refusal has a code of the catalogue, and every code of the catalogue is a refusal of some route."""

import ast
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from runyard.http.messages import Request
from runyard.http.openapi import describe
from runyard.http.problems import Problem, problem
from runyard.http.routes import Route
from runyard.wire.problem_codes import PROBLEMS, ProblemCode

SOURCE = Path(__file__).resolve().parents[2] / "src" / "runyard"
MAKERS = {"problem": 1, "Refused": 1}  # the place of the code among the arguments
# The client of the REST API: it reads problems and makes none.
WITHOUT_CODE = {"cli/server_client.py"}


def calls(name: str) -> list[tuple[str, ast.Call]]:
    """Every call of a function or class of this name in the source, with its file."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if f"{name}(" not in text:
            continue  # parsing every file would take seconds
        tree = ast.parse(text)
        imported = {
            each.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(".problems")
            for each in node.names
        }
        if name in imported or path.name == "problems.py":
            found += [
                (path.relative_to(SOURCE).as_posix(), node)
                for node in ast.walk(tree)
                if isinstance(node, ast.Call)
                if isinstance(node.func, ast.Name) and node.func.id == name
            ]
    return found


def test_every_refusal_in_source_has_a_member_of_the_catalogue() -> None:
    used: Counter[str] = Counter()
    for maker, place in MAKERS.items():
        for path, call in calls(maker):
            if path in WITHOUT_CODE:
                continue
            code = call.args[place]
            if isinstance(code, ast.Attribute):
                assert ast.unparse(code.value) == "ProblemCode", (path, call.lineno)
                used[code.attr] += 1
            else:  # passed on, with the type ProblemCode
                assert ast.unparse(code) == "code", (path, call.lineno)
    assert len(used) > 60
    server = (SOURCE / "http" / "server.py").read_text("utf-8")
    unused = [
        each.name
        for each in ProblemCode
        if each.name not in used and f"ProblemCode.{each.name}" not in server
    ]
    assert unused == [], "remove these"


def test_a_problem_without_a_code_is_made_nowhere() -> None:
    bare = [
        f"{path}:{call.lineno}"
        for path, call in calls("Problem")
        if path not in WITHOUT_CODE
        if not any(each.arg == "code" for each in call.keywords)
    ]
    assert bare == []


@pytest.mark.parametrize("code", ProblemCode)
def test_a_problem_is_its_code_its_detail_and_its_text(code: ProblemCode) -> None:
    detail = dict.fromkeys(code.types, "x")
    answer = problem(418, code, reason="r", fix="f", headers=(), **detail)
    body = msgspec.json.decode(answer.body, type=Problem)
    assert (answer.status, body.code, body.detail) == (418, code.value, detail)
    assert body.error == PROBLEMS.text(code, detail)
    assert (body.reason, body.fix) == ("r", "f")


def test_the_document_lists_every_code() -> None:
    async def handler(_: Request) -> None:
        raise NotImplementedError

    document = describe("t", "1", (Route("GET", "/", handler),))
    schema = document["components"]["schemas"]["Problem"]["properties"]["code"]
    assert schema["examples"] == sorted(PROBLEMS.slugs)
