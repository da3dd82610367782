"""Tests that `runyard host` refuses what cannot work in one line, before anything is sent, and never shows a secret."""

from pathlib import Path

import pytest

from runyard.cli import hostrun
from runyard.cli.host import Duration
from runyard.cli.hostservice import agent_command
from runyard.cli.main import cli
from runyard.cli.main import run as run_cli
from runyard.clock import RealClock
from runyard.embedded.up.layout import Layout
from runyard.hosts.joining.membership import Membership, MembershipFiles
from runyard.http.tls import make_authority
from runyard.wire.joining import JoinToken

TOKEN = JoinToken("0123456789", "ab" * 20, "cd" * 32)


def run(*argv: str) -> int:
    return run_cli(cli, name="runyard", argv=["host", *argv])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["join", "https://127.0.0.1:1", "half.a.token"], "not complete"),
        (
            ["join", "https://127.0.0.1:1", TOKEN.text, "--name", "Not/One"],
            "cannot be a host's name",
        ),
        (["join", "https://127.0.0.1:1", TOKEN.text, "--labels", "x"], "not a label"),
        (["token", "--ttl", "soon"], "not a duration"),
        (["token", "--ttl", "8d"], "between"),
        (["token", "--list", "--revoke", "0123456789"], "either"),
        (["token", "--name", "A B"], "cannot be a host's name"),
        (["token", "--revoke", "x"], "not the id of a token"),
        (["token"], "takes no hosts"),
        *(
            (["token", "--address", each], "is no address")
            for each in (
                "foo bar",
                "10.0.0.1:99999",
                "10.0.0.999",
                "a;b",
                "https://a:1",
                "[::1",
                "a:",
                "x/y",
            )
        ),
        (["token", "--address", "10.0.0.1:999"], "takes no hosts"),
        (["list"], "does not run"),
        (["remove", "mini-2"], "does not run"),
        (["remove", "mini-2", "--kubeconfig", "k"], "No such option"),
        (["token", "--name", "host-2"], "main machine's own"),
        (["join", "https://127.0.0.1:1", TOKEN.text, "--name", "host-2"], "main machine's own"),
    ],
    ids=lambda each: " ".join(each)[:24] if isinstance(each, list) else "",
)
def test_what_cannot_work_is_one_line_and_nothing_is_sent(
    argv: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RUNYARD_DATA", str(tmp_path / "up"))
    assert run(*argv) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert said in errors
    assert TOKEN.secret not in errors


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1", "https://127.0.0.1", "https://me:hush@127.0.0.1:1"]
)
def test_the_wrong_url_is_a_usage_error_before_the_drivers_are_probed(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("join", url, TOKEN.text, "--data", str(tmp_path / "new"), "--no-service") == 2
    said = capsys.readouterr()
    assert said.err.endswith("(url-invalid)\n") and said.out == ""
    assert TOKEN.secret not in said.err and "hush" not in said.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("", "https://10.0.0.1:7444"),
        ("mini.local", "https://mini.local:7444"),
        ("10.0.0.7:999", "https://10.0.0.7:999"),
        ("2001:db8::7", "'https://[2001:db8::7]:7444'"),
        ("[2001:db8::7]:999", "'https://[2001:db8::7]:999'"),
    ],
)
def test_the_printed_command_can_be_pasted(
    address: str,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    layout = Layout(tmp_path)
    layout.tls.mkdir(parents=True)
    (layout.tls / "ca.crt").write_bytes(make_authority(now=RealClock().now()).certificate)
    layout.urls.write_text('{"hosts": "https://10.0.0.1:7444"}')
    monkeypatch.setattr(hostrun, "_with_kube", lambda *_: TOKEN.text)
    assert run("token", "--data", str(tmp_path), *(["--address", address] if address else [])) == 0
    assert capsys.readouterr().out == f"runyard host join {url} {TOKEN.text}\n"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("30m", 1800.0), ("1h", 3600.0), ("2d", 172800.0)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_the_agent_of_a_joined_host_is_started_without_a_secret_in_its_arguments(
    tmp_path: Path,
) -> None:
    files = MembershipFiles(tmp_path)
    member = Membership(
        url="https://m:1", name="mini-2", fleet="local", namespace="n", driver="auto"
    )
    words = agent_command(tmp_path, member)
    assert words[-6:] == ("agent", "--joined", "--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert Path(words[0]).is_absolute()
    assert str(files.token) not in words


def test_an_agent_that_did_not_join_says_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_cli(cli, name="runyard", argv=["agent", "--joined", "--data", str(tmp_path)])
    assert code == 2
    assert "runyard host join URL TOKEN" in capsys.readouterr().err


def test_a_driver_that_was_chosen_is_passed_to_the_agent(tmp_path: Path) -> None:
    member = Membership(url="u", name="n", fleet="f", namespace="n", driver="process")
    words = agent_command(tmp_path, member)
    assert words[words.index("--driver") + 1] == "process"
