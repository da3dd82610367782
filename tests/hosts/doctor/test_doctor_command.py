"""`runyard doctor` reports what was found, changes nothing, shows no secret, and its page says what it does."""

import asyncio
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hosts.doctor import outputs_linux, outputs_macos
from tests.hosts.doctor.cases import Case, Ran, facts, given_of
from tests.hosts.doctor.stubs import together, write_files, write_programs
from tests.transcripts import ROOT, check, transcripts

from runyard.cli import doctormachine
from runyard.cli.doctorshow import TITLES, probe_text, results_json, results_text
from runyard.cli.main import cli, run
from runyard.clock import RealClock
from runyard.embedded.lock import DirectoryLock
from runyard.hosts.doctor import inspections
from runyard.hosts.doctor.checks import CHECKS, Check, Inspect, checks_for
from runyard.hosts.doctor.plans.findings import Github, Machine, Verdict
from runyard.hosts.doctor.plans.hosting import Agent
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.next_step import next_step
from runyard.hosts.doctor.plans.reasons import Found
from runyard.hosts.doctor.runner import Runner

CASES = [*outputs_macos.CASES, *outputs_linux.CASES]
PAGE = ROOT / "docs" / "doctor.md"  # doctor.md, whose transcript is made here
BEGIN, END = "<!-- checks -->\n", "<!-- end of checks -->"
# A Mac as it is delivered: one case of each check.
DELIVERED = {
    CheckId.MACOS_VERSION: "26",
    CheckId.VIRTUALIZATION: "apple",
    CheckId.GUI_SESSION: "at-screen",
    CheckId.AUTO_LOGIN: "off",
    CheckId.FILEVAULT: "on",
    CheckId.SLEEP: "sleeps",
    CheckId.POWER_RESTART: "off",
    CheckId.AUTO_LOGOUT: "unset",
    CheckId.UPDATES: "installed",
    CheckId.LOCAL_NETWORK: "hidden",
    CheckId.DHCP_LEASE: "default",
    CheckId.IMAGE_SPACE: "first",
    CheckId.PYTHON: "native",
    CheckId.MEMORY: "16",
    CheckId.CLOCK: "right",
    CheckId.DATA_LOCATION: "local",
}


def picked(labels: dict[CheckId, str]) -> list[Case]:
    return [
        next(each for each in outputs_macos.CASES if each.id is wanted and each.label == label)
        for wanted, label in labels.items()
    ]


def delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The checks of a new Mac, what they find, and the next step."""
    cases = picked(DELIVERED)
    root = write_files(tmp_path / "root", {p: t for c in cases for p, t in c.files.items()})
    programs = {
        **together(cases),
        "sw_vers -productVersion": Ran("26.2\n"),
        "pmset -g": Ran(outputs_macos.PMSET_SLEEPS),
    }
    write_programs(tmp_path / "bin", programs)
    values = {name: value for each in cases for name, value in each.values.items()}
    values["data-directory"] = outputs_linux.folder(
        path="/Users/ci/.local/share/runyard", exists=False
    )
    for name, value in values.items():
        monkeypatch.setitem(inspections.INSPECTIONS, name, lambda _, value=value: value)
    known = facts(
        "darwin",
        machine=Machine(),
        github=Github(configured=False),
        agent=Agent(data="/Users/ci/.local/share/runyard-agent"),
        open_files=(256, -1),
    )
    checks = checks_for("darwin")
    runner = Runner(known, env={"PATH": str(tmp_path / "bin")}, root=root)
    results = asyncio.run(runner.run(checks))
    return checks, results, next_step(results, known)


def test_the_page_shows_another_output_than_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, results, step = delivered(tmp_path, monkeypatch)
    if os.environ.get("RUNYARD_TRANSCRIPTS") == "write" and not transcripts("docs/doctor.md"):
        text = PAGE.read_text("utf-8").replace("$ runyard doctor\n", "$ runyard doctor\n-\n")
        PAGE.write_text(text, "utf-8")
    [transcript] = transcripts("docs/doctor.md")
    check(transcript, [results_text(checks, results, step)])


def table() -> str:
    """The table of the page: one line for each check, with the fixes of all bad cases."""
    lines = [
        "| check | question and what is looked at | why it matters | fix |",
        "|---|---|---|---|",
    ]
    for wanted in dict.fromkeys(each.id for each in CHECKS):
        both = [each for each in CHECKS if each.id is wanted]
        looks = dict.fromkeys(text for each in both for text in _looks(each))
        fixes: dict[str, None] = {}
        for case in (each for each in CASES if each.id is wanted):
            for finding in case.check.judge(given_of(case)):
                if finding.verdict is not Verdict.OK:
                    fixes |= {
                        f"`{fix.do}`" if fix.command else fix.do: None for fix in finding.fixes
                    }
        cells = (
            f"`{wanted.value}`",
            f"{wanted.template} {'; '.join(looks)}",
            "; ".join(dict.fromkeys(each.why for each in both)),
            "<br>".join(fixes) or "as the finding says",
        )
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _looks(check: Check) -> list[str]:
    """What it looks at; programs and files as code."""
    texts = [
        probe_text(each) if isinstance(each, Inspect) else f"`{probe_text(each)}`"
        for each in check.probes
    ]
    return texts or [check.looks_at]


def test_the_table_of_the_page_has_other_checks_than_the_code() -> None:
    text = PAGE.read_text("utf-8")
    before, rest = text.split(BEGIN)
    shown, after = rest.split(END)
    if os.environ.get("RUNYARD_TRANSCRIPTS") == "write":
        PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}", "utf-8")
    else:
        assert shown == table(), "write it with RUNYARD_TRANSCRIPTS=write"


def test_what_is_fine_hides_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, results, step = delivered(tmp_path, monkeypatch)
    text = results_text(checks, results, step, verbose=True)
    blocks = [line for line in text.splitlines() if line.isupper()]
    assert blocks == ["PROBLEMS", "WARNINGS", "UNKNOWN", "OK"]
    assert all(f"{each.id.value}: " in text for each in checks)
    assert text.splitlines()[-1].strip() == step.command
    found = results_json(checks, results, step)
    assert found["ok"] is False
    assert sum(found["counts"].values()) == len(found["findings"]) >= len(checks)


def test_a_group_has_no_title() -> None:
    assert {each.group for each in CHECKS} == set(TITLES)


# ── the command ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with nothing."""
    for name in [each for each in os.environ if each.startswith(("RUNYARD_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "data"


def doctor(*argv: str) -> int:
    try:
        return run(cli, name="runyard", argv=["doctor", *argv])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.usefixtures("own")
def test_a_mistyped_check_is_taken_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--only", "slep") == 2
    assert "--list" in capsys.readouterr().err


def test_a_check_changes_the_data_directory(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--only", "data-directory", "--only", "ports", "--data", str(own), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["reason"] for each in found["findings"]] == ["data-new", "ports-unchosen"]
    assert found["next"]["command"] == f"runyard up --data {own}"
    assert not own.exists()


def test_a_problem_ends_with_success(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.mkdir()
    (own / "ports.json").write_text("{")
    assert doctor("--only", "components", "--data", str(own)) == 1
    text = capsys.readouterr().out
    assert text.startswith("PROBLEMS\n  the fleet\n    components: ")
    again = f"runyard doctor --data {own}"
    assert text.endswith(f"Next: Fix the problems above (1), then check again\n  {again}\n")


@pytest.mark.usefixtures("own")
def test_the_list_leaves_a_check_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--list", "--json") == 0
    listed = [each["id"] for each in json.loads(capsys.readouterr().out)]
    assert listed == [each.id.value for each in checks_for(facts("linux").platform)]


class Server(http.server.BaseHTTPRequestHandler):
    """A server with one failing condition, for callers with the token."""

    def do_GET(self) -> None:
        body: dict[str, object] = {"ready": True}
        if self.headers["authorization"] == "Bearer of-the-dashboard":
            failing = {
                "code": "database-unreachable", "title": "the database is away", "fix": "start it",
                "severity": "error", "message": "refused", "since": 1.0,
            }  # fmt: skip
            body |= {"works": False, "stale": [], "conditions": [failing]}
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_address[1]
        found.shutdown()


def write_machine(own: Path, port: int) -> None:
    own.mkdir()
    (own / "ports.json").write_text(json.dumps({"server": port}))
    urls = {
        "server": f"http://127.0.0.1:{port}",
        "host-1": "http://127.0.0.1:9",
        "github": "https://api.github.com",
    }
    (own / "urls.json").write_text(json.dumps(urls))
    (own / "dashboard.token").write_text("of-the-dashboard\n")


def test_a_running_fleet_that_fails_looks_well(
    own: Path, server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write_machine(own, server)
    lock = DirectoryLock(own)
    lock.acquire()
    try:
        checks = [
            word for name in ("components", "conditions", "ports") for word in ("--only", name)
        ]
        assert doctor(*checks, "--data", str(own), "--json") == 1
    finally:
        lock.release()
    text = capsys.readouterr().out
    found = {each["reason"]: each for each in json.loads(text)["findings"]}
    assert list(found) == ["component-silent", "condition-fails", "ports-own"]
    assert found["component-silent"]["detail"] == {"names": "host-1"}
    assert found["condition-fails"]["detail"]["code"] == "database-unreachable"
    assert "of-the-dashboard" not in text


def test_a_program_that_took_the_port_gets_the_token(
    own: Path, server: int, capsys: pytest.CaptureFixture[str]
) -> None:
    write_machine(own, server)
    found = asyncio.run(doctormachine.machine_of(own))
    assert (found.running, found.conditions, found.taken) == (False, None, (("server", server),))
    assert doctor("--only", "ports", "--data", str(own)) == 0
    assert f"lsof -nP -iTCP:{server} -sTCP:LISTEN" in capsys.readouterr().out


@pytest.mark.usefixtures("own")
def test_github_without_a_key_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asyncio.run(doctormachine.github_of(RealClock(), ask=True)) == Github(configured=False)
    monkeypatch.setenv("RUNYARD_GITHUB_TOKEN_FILE", str(tmp_path / "token"))
    assert doctor("--only", "github", "--json") == 1
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert finding["reason"] == Found.GITHUB_UNUSABLE.value


@pytest.mark.usefixtures("own")
def test_what_github_check_finds_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("ghp_secret\n")
    monkeypatch.setenv("RUNYARD_GITHUB_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("RUNYARD_GITHUB_REPOSITORY", "acme/app")
    monkeypatch.setenv("RUNYARD_GITHUB_URL", "http://127.0.0.1:9")
    assert doctor("--only", "github", "--json") == 1
    text = capsys.readouterr().out
    [finding] = json.loads(text)["findings"]
    assert (finding["reason"], finding["verdict"]) == ("github-line", "problem")
    assert finding["detail"]["what"] == "GitHub"
    assert "ghp_secret" not in text
