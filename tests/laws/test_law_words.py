"""The project uses plain words, and the law notices each private one."""

import lawbook_words
import lawtree
import pytest
from lawbook_words import TABLE, Private, private_words

ALL = lawbook_words.ALL
SUFFIXES = frozenset({".py", ".sql", ".md", ".sh", ".js", ".css", ".html", ".yaml", ".toml"})
NAMES = [each for each in TABLE if " " not in each.word]
PROSE = [each for each in TABLE if each.prose]


def camel(word: str) -> str:
    return word[:1].upper() + word[1:]


def a_path(each: Private) -> str:
    folder = each.folders[0]
    return folder if "." in folder.rpartition("/")[2] else f"{folder}sample.py"


def test_the_project_uses_plain_words() -> None:
    names = {path.relative_to(lawtree.ROOT).as_posix(): path for path in lawtree.tracked()}
    read = {
        name: path
        for name, path in names.items()
        if path.suffix in SUFFIXES and name.startswith(ALL)
    }
    assert len(read) > 1000
    assert [
        f"{name}: {complaint}"
        for name, path in read.items()
        for complaint in private_words(path.read_text(encoding="utf-8"), path=name)
    ] == []


def test_every_word_has_a_replacement_and_stands_once() -> None:
    words = [each.word for each in TABLE]
    assert len(words) == len(set(words))
    assert all(each.say and each.word == each.word.lower() for each in TABLE)
    assert [each.word for each in TABLE if " " in each.word and not each.prose] == []


@pytest.mark.parametrize("each", NAMES, ids=lambda each: each.word)
def test_a_private_word_in_a_name_is_noticed(each: Private) -> None:
    word, path = each.word, a_path(each)
    planted = {
        "function": f"def open_{word}(): ...",
        "class": f"class Front{camel(word)}: ...",
        "constant": f"{word.upper()}_LIMIT = 3",
        "attribute": f"print(server.{word})",
        "argument": f"start({word}=3)",
        "import": f"from runyard.web import {word}",
        "in an f-string": f"f'{{self.{word}_count}}'",
    }
    assert [kind for kind, source in planted.items() if not private_words(source, path=path)] == []
    assert private_words("", path=path.replace("sample", f"test_{word}_x"))


@pytest.mark.parametrize("each", PROSE, ids=lambda each: each.word)
def test_a_private_word_in_prose_is_noticed(each: Private) -> None:
    word, path = each.word, a_path(each)
    planted = {
        "docstring": f'"""Opens the {camel(word)}."""',
        "comment": f"x = 1  # the {word} is open",
        "message": f"raise ValueError('the {word} is closed')",
        "f-string": f"log(f'the {word} of {{name}}')",
        "wrapped": '"""Opens the ' + word.replace(" ", "\n    ") + '."""',
        "wrapped comment": "# opens the " + word.replace(" ", "\n# "),
    }
    assert [kind for kind, source in planted.items() if not private_words(source, path=path)] == []
    assert private_words(f"Open the {word} first.", path="docs/sample.md") or each.folders != ALL


DESK = (Private("desk", "queue", prose=True), Private("told", "reported", folders=("src/",)))


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("desktop = 1", "src/a.py"),
        ("x = 'SELECT desk_id FROM front_desk'", "src/a.py"),
        ("SELECT desk_id FROM t", "src/a.sql"),
        ("told = 1", "tests/a.py"),
        ("# it was told so", "src/a.py"),
        ("the desk", "other/a.md"),
    ],
    ids=["part of a word", "column", "sql", "elsewhere", "prose", "not ours"],
)
def test_the_law_finds_whole_words_only(source: str, path: str) -> None:
    assert private_words(source, path=path, table=DESK) == []


def test_a_complaint_names_line_word_and_replacement() -> None:
    source = "x = 1\ndef front_desk(): ...\n\n# the\n# desk\n"
    assert private_words(source, path="src/a.py", table=DESK) == [
        "line 2: 'front_desk' uses the private word 'desk'; say queue",
        "line 5: has the private word 'desk'; say queue",
    ]
