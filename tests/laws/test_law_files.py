"""The repository obeys its laws of SQL, lock files and words, and each law can be broken."""

import re
from collections.abc import Callable

import lawbook_text
import lawtree
import pytest

Law = Callable[[str], list[str]]
HASH = "    --hash=sha256:" + "0" * 64


def text(name: str) -> str:
    return (lawtree.ROOT / name).read_text(encoding="utf-8")


def test_no_file_speaks_of_a_machine_or_a_registry() -> None:
    readable = [path for path in lawtree.tracked() if b"\0" not in path.read_bytes()]
    assert readable
    assert lawtree.break_law(lawbook_text.forbidden_words, readable) == []


@pytest.mark.parametrize("law", [lawbook_text.sql_without_comment, lawbook_text.impure_sql])
def test_every_sql_file_obeys(law: Law) -> None:
    assert lawtree.break_law(law, lawtree.sql()) == []


def test_a_statement_is_found_by_its_file() -> None:
    statements = [path for path in lawtree.sql() if path.parent.name != "migrations"]
    assert lawtree.break_law(lawbook_text.several_statements, statements) == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_the_locks_pin_by_hash_and_name_no_index(name: str) -> None:
    assert lawbook_text.loose_lock(text(name)) == []


BAD: list[tuple[Law, str]] = [
    (lawbook_text.forbidden_words, "see /wor" + "k/notes"),
    (lawbook_text.forbidden_words, "run /tmp/dev" + "env/bin/python"),
    (lawbook_text.forbidden_words, "as Seed 0" + "04 tells"),
    (lawbook_text.forbidden_words, "image = docker.i" + "o/some/image"),
    (lawbook_text.sql_without_comment, "SELECT 1;\n"),
    (lawbook_text.sql_without_comment, "--\nSELECT 1;\n"),
    (lawbook_text.several_statements, "-- two\nSELECT 1;\nSELECT 2;\n"),
    (lawbook_text.several_statements, "-- none\n"),
    (lawbook_text.impure_sql, "-- x\nSELECT now();\n"),
    (lawbook_text.impure_sql, "-- x\nSELECT Clock_Timestamp ();\n"),
    (lawbook_text.impure_sql, "-- x\nSELECT CURRENT_TIMESTAMP;\n"),
    (lawbook_text.impure_sql, "-- x\nINSERT INTO t VALUES (gen_random_uuid());\n"),
    (lawbook_text.impure_sql, "-- x\nSELECT 1 ORDER BY random();\n"),
    (lawbook_text.loose_lock, "click==8.5.1\n"),
    (lawbook_text.loose_lock, "click>=8 \\\n" + HASH + "\n"),
    (lawbook_text.loose_lock, f"click==8.5.1 \\\n{HASH} \\\n    --hash=md5:1\n"),
]


@pytest.mark.parametrize(
    ("law", "sample"), BAD, ids=[f"{law.__name__}-{n}" for n, (law, _) in enumerate(BAD)]
)
def test_a_breach_is_seen(law: Law, sample: str) -> None:
    assert law(sample)


def test_an_index_in_a_lock_is_seen() -> None:
    complaints = lawbook_text.loose_lock("--index-url https://example.invalid/simple\n")
    assert "line 1: names an address" in complaints


GOOD: list[tuple[Law, str]] = [
    (lawbook_text.forbidden_words, "the guest's _work/ folder and homework/ and /srv/work/x"),
    (lawbook_text.sql_without_comment, "-- Why this is read.\nSELECT 1;\n"),
    (lawbook_text.several_statements, "-- one; really\nSELECT ';' AS semicolon;\n"),
    (lawbook_text.several_statements, "-- one\nDO $$ BEGIN PERFORM 1; PERFORM 2; END $$;\n"),
    (lawbook_text.impure_sql, "-- not now()\nSELECT runyard_now(), 'now()';\n"),
    (
        lawbook_text.impure_sql,
        (
            "-- x\nCREATE FUNCTION runyard_now() RETURNS timestamptz AS $f$\n"
            "  SELECT clock_timestamp();\n$f$ LANGUAGE sql;\n"
        ),
    ),
    (lawbook_text.loose_lock, f"click==8.5.1 \\\n{HASH} \\\n{HASH}\n"),
    (lawbook_text.loose_lock, f"cffi==2.1 ; sys_platform != 'win32' \\\n{HASH}\n"),
]


@pytest.mark.parametrize(
    ("law", "sample"), GOOD, ids=[f"{law.__name__}-{n}" for n, (law, _) in enumerate(GOOD)]
)
def test_obedience_is_not_blamed(law: Law, sample: str) -> None:
    assert law(sample) == []


def test_time_outside_the_time_function_is_still_seen() -> None:
    beside = (
        "-- x\nCREATE FUNCTION runyard_now() RETURNS timestamptz AS $$ SELECT now() $$ LANGUAGE sql;\n"
        "SELECT now();\n"
    )
    assert lawbook_text.impure_sql(beside) == [
        "line 3: 'now' reads time or chance; use runyard_now() or a parameter"
    ]


def commands(script: str) -> list[str]:
    """The make commands of a shell script or of a page's indented and fenced lines."""
    return re.findall(r"^[ \t$]*(make [a-z][a-z -]*[a-z])", script, flags=re.MULTILINE)


def test_a_reader_can_run_what_the_verdict_runs() -> None:
    of_ci = [command for command in commands(text(".ci/run")) if "test-all" in command]
    assert of_ci == ["make check test-all"]
    assert of_ci[0] in commands(text("README.md"))


def test_the_command_finder_sees_commands_only() -> None:
    assert commands("echo make nothing\n  make check test-all 2>&1\n$ make demo\n") == [
        "make check test-all",
        "make demo",
    ]


def test_every_make_target_explains_itself() -> None:
    makefile = text("Makefile")
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[0].split()
    explained = re.findall(r"^([a-z][a-z-]*):[^#\n]*## \S", makefile, flags=re.MULTILINE)
    assert sorted(phony) == sorted(explained)
