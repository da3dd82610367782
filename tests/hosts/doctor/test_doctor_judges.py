"""Each judge finds what recorded outputs mean, and takes nothing that it does not understand for good."""

import msgspec
import pytest
from hypothesis import given as generated
from hypothesis import strategies as st
from tests.hosts.doctor import outputs_linux, outputs_macos
from tests.hosts.doctor.cases import NOW, Case, facts, given_of

from runyard.hosts.doctor.checks import CHECKS, Check
from runyard.hosts.doctor.plans.everywhere import file_system
from runyard.hosts.doctor.plans.findings import (
    Component,
    Ended,
    Facts,
    Failing,
    Findings,
    Github,
    GithubLine,
    Given,
    Machine,
    Output,
    Verdict,
    unknown,
)
from runyard.hosts.doctor.plans.hosting import Agent, Joined, Login, Reach, Service
from runyard.hosts.doctor.plans.ids import CheckId
from runyard.hosts.doctor.plans.macos import taken_addresses
from runyard.hosts.doctor.plans.next_step import next_step
from runyard.hosts.doctor.plans.otherwise import OTHERWISE, with_fixes
from runyard.hosts.doctor.plans.reasons import Found, Next
from runyard.wire.reasons import render

CASES = [*outputs_macos.CASES, *outputs_linux.CASES]
PROBED = [each for each in CHECKS if each.probes]


def name(check: Check) -> str:
    return f"{check.platforms[0]}-{check.id}"


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.platform}-{each.id}-{each.label}")
def test_an_output_is_judged_as_something_else(case: Case) -> None:
    [finding] = case.check.judge(given_of(case))
    assert (finding.reason.code, finding.verdict.value) == (case.found, case.verdict)
    assert render(finding.reason)


def test_a_check_is_tested_on_good_outputs_only() -> None:
    verdicts = {
        (platform, check.id): {
            each.verdict for each in CASES if each.id is check.id and platform == each.platform
        }
        for check in CHECKS
        for platform in check.platforms
        if check.probes
    }
    # Those with the same judge and the same probes on both systems are tested on one of them.
    both = {CheckId.DATA_DIRECTORY, CheckId.DATA_SPACE}
    lacking = {
        key: found
        for key, found in verdicts.items()
        if not (key[0] == "darwin" and key[1] in both)
        and not ("ok" in found and found & {"warning", "problem"})
    }
    assert not lacking


@pytest.mark.parametrize(
    "garbage", ["", "\x00\xff", "?\n" * 50, "{", "[]", "true", "-1\n", "9" * 400]
)
@pytest.mark.parametrize("check", PROBED, ids=name)
def test_garbage_is_taken_for_good(check: Check, garbage: str) -> None:
    found = check.judge(_given(check, out=garbage))
    names_and_codes = {CheckId.AUTO_LOGIN: ["true"], CheckId.USER_NAMESPACES: [garbage]}
    for each in found:
        if garbage not in names_and_codes.get(check.id, []) and check.platforms != ("linux",):
            assert each.verdict is Verdict.UNKNOWN, each
        if check.id not in {CheckId.PYTHON, CheckId.USER_NAMESPACES}:
            assert each.verdict is not Verdict.OK


@pytest.mark.parametrize("ended", [Ended.MISSING, Ended.HUNG, Ended.REFUSED])
@pytest.mark.parametrize("check", PROBED, ids=name)
def test_a_check_that_cannot_be_made_is_hidden(check: Check, ended: Ended) -> None:
    found = check.judge(_given(check, ended=ended))
    meaning = {  # what is missing is itself the finding
        (CheckId.TART, Ended.MISSING): Found.TART_ABSENT,
        (CheckId.SANDBOX, Ended.MISSING): Found.SANDBOX_ABSENT,
        (CheckId.VM_NETWORK, Ended.MISSING): Found.NETWORK_ABSENT,
        (CheckId.CGROUPS, Ended.MISSING): Found.CGROUPS_OLD,
        (CheckId.KVM, Ended.MISSING): Found.KVM_ABSENT,
    }
    [finding] = found
    if expected := meaning.get((check.id, ended)):
        assert finding.reason.code is expected
    else:
        assert finding.verdict is Verdict.UNKNOWN
        assert finding.reason.code.value == f"probe-{ended.value}"


def _given(check: Check, *, ended: Ended = Ended.DONE, out: str = "") -> Given:
    platform = check.platforms[0]
    outputs = tuple(Output(source="it", ended=ended, out=out) for _ in check.probes)
    return Given(facts=facts(platform, arch="x86_64"), outputs=outputs)


@generated(
    check=st.sampled_from(PROBED),
    texts=st.lists(st.text(max_size=80), min_size=4, max_size=4),
    codes=st.lists(st.integers(-15, 255), min_size=4, max_size=4),
    ended=st.lists(st.sampled_from(list(Ended)), min_size=4, max_size=4),
)
def test_an_output_breaks_the_judge(
    check: Check, texts: list[str], codes: list[int], ended: list[Ended]
) -> None:
    rows = zip(check.probes, texts, codes, ended, strict=False)
    outputs = tuple(
        Output(source="it", out=text, code=code, ended=how) for _, text, code, how in rows
    )
    for each in check.findings(Given(facts=facts(check.platforms[0]), outputs=outputs)):
        assert each.fixes or each.verdict is Verdict.OK
        render(each.reason)


@pytest.mark.parametrize("case", CASES, ids=lambda each: f"{each.platform}-{each.id}-{each.label}")
def test_a_finding_leaves_its_reader_without_a_fix(case: Case) -> None:
    [judged] = case.check.judge(given_of(case))
    if case.verdict in {"warning", "problem"}:
        assert judged.fixes
    [finding] = case.check.findings(given_of(case))
    assert finding.fixes or case.verdict == "ok"
    for fix in finding.fixes:
        assert fix.root == fix.do.startswith("sudo ")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/Users/ci/.local/share/runyard", "apfs"),
        ("/Volumes/builds/runyard", "smbfs"),
        ("/Volumes/My Disk/runyard", "apfs"),
        ("/Volumes/buildsystem", "apfs"),
    ],
)
def test_the_file_system_of_another_directory_is_judged(path: str, kind: str) -> None:
    assert file_system(outputs_macos.MOUNTS, path) == kind


def test_a_mount_point_with_a_space_is_not_recognised() -> None:
    assert file_system(outputs_linux.MOUNTS, "/home/ci/with space/x") == "tmpfs"


def test_expired_leases_and_renewed_ones_count_twice() -> None:
    twice = outputs_macos.leases(3, until=NOW + 60) * 2
    assert taken_addresses(twice + outputs_macos.leases(9, until=NOW - 1), now=NOW) == 3


def test_a_name_runs_a_command_when_its_fix_is_pasted() -> None:
    [finding] = next(
        each.check.judge(given_of(each)) for each in CASES if each.found is Found.SLOTS_TAKEN
    )
    assert [each.do for each in finding.fixes] == ["tart stop sonoma-test", "tart stop 'xcode dev'"]


@pytest.mark.parametrize(
    "label", ["own", "own-of-an-agent-that-restarts", "own-and-another", "of-an-agent-elsewhere"]
)
def test_a_fix_stops_the_vm_of_a_job(label: str) -> None:
    case = next(each for each in CASES if each.id is CheckId.VM_SLOTS and each.label == label)
    [finding] = case.check.judge(given_of(case))
    stopped = [each.do for each in finding.fixes if each.command]
    assert stopped == (["tart stop 'xcode dev'"] if label == "own-and-another" else [])


def test_a_fix_for_a_full_disk_frees_nothing() -> None:
    fixes = {}
    for each in (case for case in CASES if case.id is CheckId.IMAGE_SPACE):
        [finding] = each.check.judge(given_of(each))
        fixes[each.label] = [fix.do.split()[0] for fix in finding.fixes if fix.command]
    assert fixes["first-full"] == fixes["first-tight"] == []  # there is nothing to prune
    assert fixes["full"] == fixes["next-tight"] == ["tart"]


# ── the fleet ───────────────────────────────────────────────────────────────────────────────────────

RUNNING = Machine(
    running=True,
    components=(Component(name="server", alive=True), Component(name="host-1", alive=True)),
    conditions=(),
    ports=3,
)
FAILING = Failing(
    code="database-unreachable", title="the database is away", fix="start it", error=True
)
LINES = (
    GithubLine(verdict=Verdict.OK, what="App", found="acme (7)"),
    GithubLine(verdict=Verdict.PROBLEM, what="acme: events", found="none", fix="subscribe"),
)


def judged(id: CheckId, **more: object) -> Findings:
    check = next(each for each in CHECKS if each.id is id)
    return check.findings(Given(facts=facts("linux", **more)))


def test_a_fleet_that_was_killed_sends_its_reader_to_read_a_log_of_each_component() -> None:
    parts = tuple(Component(name=name, alive=False) for name in ("kube", "server", "host-1"))
    (found,) = judged(CheckId.COMPONENTS, machine=Machine(running=True, components=parts))
    assert render(found.reason) == "no response from kube, server, host-1"
    assert "runyard up" in found.fixes[0].do
    alive = (*parts, Component(name="operator", alive=True))
    (found,) = judged(CheckId.COMPONENTS, machine=Machine(running=True, components=alive))
    assert all("runyard up" not in fix.do for fix in found.fixes)


@pytest.mark.parametrize(
    ("id", "machine", "expected"),
    [
        (CheckId.COMPONENTS, RUNNING, [(Found.MACHINE_RUNS, "ok")]),
        (CheckId.COMPONENTS, Machine(), [(Found.MACHINE_STOPPED, "ok")]),
        (CheckId.COMPONENTS, Machine(damaged="ports.json is cut"), [(Found.MACHINE_DAMAGED, "problem")]),
        (
            CheckId.COMPONENTS,
            Machine(running=True, components=(Component(name="host-1", alive=False),)),
            [(Found.COMPONENT_SILENT, "problem")],
        ),
        (CheckId.COMPONENTS, None, [(Found.MACHINE_UNASKED, "unknown")]),
        (CheckId.CONDITIONS, RUNNING, [(Found.CONDITIONS_WELL, "ok")]),
        (CheckId.CONDITIONS, Machine(), [(Found.CONDITIONS_NOT_ASKED, "ok")]),
        (CheckId.CONDITIONS, Machine(running=True), [(Found.CONDITIONS_UNREAD, "unknown")]),
        (
            CheckId.CONDITIONS,
            Machine(running=True, conditions=(FAILING, FAILING)),
            [(Found.CONDITION_FAILS, "problem")] * 2,
        ),
        (CheckId.PORTS, RUNNING, [(Found.PORTS_OWN, "ok")]),
        (CheckId.PORTS, Machine(), [(Found.PORTS_UNCHOSEN, "ok")]),
        (CheckId.PORTS, Machine(ports=2), [(Found.PORTS_FREE, "ok")]),
        (CheckId.PORTS, Machine(ports=2, taken=(("kube", 6443),)), [(Found.PORT_TAKEN, "warning")]),
    ],
)  # fmt: skip
def test_the_state_of_the_fleet_is_misread(
    id: CheckId, machine: Machine | None, expected: list[tuple[Found, str]]
) -> None:
    found = judged(id, machine=machine)
    assert [(each.reason.code, each.verdict.value) for each in found] == expected


@pytest.mark.parametrize(
    ("github", "expected"),
    [
        (None, [(Found.GITHUB_UNASKED, "unknown")]),
        (Github(configured=False), [(Found.GITHUB_ABSENT, "ok")]),
        (Github(configured=True, unusable="no key"), [(Found.GITHUB_UNUSABLE, "problem")]),
        (
            Github(configured=True, lines=LINES),
            [(Found.GITHUB_LINE, "ok"), (Found.GITHUB_LINE, "problem")],
        ),
    ],
)
def test_what_github_reports_is_lost(
    github: Github | None, expected: list[tuple[Found, str]]
) -> None:
    found = judged(CheckId.GITHUB, github=github)
    assert [(each.reason.code, each.verdict.value) for each in found] == expected


def test_a_check_has_no_advice_for_what_it_cannot_check() -> None:
    assert set(OTHERWISE) == set(CheckId)
    reason = Found.PROBE_HUNG.because(source="it", seconds=5.0)
    for each in CheckId:
        [finding] = with_fixes(each, unknown(reason))
        assert finding.fixes and not finding.fixes[0].command


# ── the agent ───────────────────────────────────────────────────────────────────────────────────────

DAY = 86400.0
URL = "https://192.0.2.10:8444"
SERVICE = Service(
    name="dev.runyard.agent", installed=True, pid=7, log="/a/log", start="launchctl kickstart x"
)
HOST = Joined(
    url=URL,
    name="mini-2",
    start="runyard agent --joined",
    reach=Reach.REACHED,
    login=Login.ACCEPTED,
    age=0.5 * DAY,
    expires=NOW + 29.5 * DAY,
)
AGENT = Agent(data="/Users/ci/agent", running=True, joined=HOST, service=SERVICE)
KUBELET = Agent(data="/Users/ci/agent", running=True)


def changed(agent: Agent = AGENT, **more: object) -> Agent:
    """The agent with another field of itself, of its membership or of its service."""
    parts: dict[str, object] = {}
    for name, part in (("joined", agent.joined), ("service", agent.service)):
        if part is not None:
            own = {key: more.pop(key) for key in [*more] if key in part.__struct_fields__}
            parts[name] = msgspec.structs.replace(part, **own)
    return msgspec.structs.replace(agent, **{**parts, **more})


ENDED = changed(running=False, pid=0, last_exit="code 2")


@pytest.mark.parametrize(
    ("agent", "found", "verdict", "fixes"),
    [
        (AGENT, Found.AGENT_RUNS, "ok", []),
        (KUBELET, Found.AGENT_OF_CLUSTER, "ok", []),
        (Agent(data="/x"), Found.AGENT_ABSENT, "ok", []),
        (Agent(data="/x", left=True), Found.AGENT_LEFT, "warning", []),
        (None, Found.AGENT_UNASKED, "unknown", ["uv tool install --reinstall 'runyard[up]'"]),
        (Agent(data="/x", damaged="no authority"), Found.AGENT_DAMAGED, "problem", []),
        (ENDED, Found.AGENT_STOPPED, "problem", ["launchctl kickstart x", "tail -n 20 /a/log"]),
        (changed(running=False, pid=0, installed=False, log=""), Found.AGENT_STOPPED, "problem",
         ["runyard agent --joined"]),
        (changed(running=False, service=None, unmanaged="no session"), Found.AGENT_STOPPED, "problem",
         ["runyard agent --joined"]),
        (changed(service=None, unmanaged="no session"), Found.AGENT_SERVICE_UNKNOWN, "unknown", []),
        (changed(installed=False, pid=0), Found.AGENT_NO_SERVICE, "warning", []),
        (changed(pid=0), Found.AGENT_BESIDE_SERVICE, "warning", ["launchctl kickstart x"]),
        (changed(boot="launchctl enable x"), Found.AGENT_NOT_AT_BOOT, "warning", ["launchctl enable x"]),
    ],
)  # fmt: skip
def test_an_agent_that_will_not_run_looks_well(
    agent: Agent | None, found: Found, verdict: str, fixes: list[str]
) -> None:
    [finding] = judged(CheckId.AGENT, agent=agent)
    assert (finding.reason.code, finding.verdict.value) == (found, verdict)
    assert [each.do for each in finding.fixes if each.command] == fixes
    assert finding.fixes or verdict == "ok"


@pytest.mark.parametrize(
    ("agent", "main", "credential"),
    [
        (AGENT, (Found.MAIN_REACHED, "ok"), (Found.CREDENTIAL_GOOD, "ok")),
        (KUBELET, (Found.MAIN_NONE, "ok"), (Found.CREDENTIAL_NONE, "ok")),
        (None, (Found.AGENT_UNASKED, "unknown"), (Found.AGENT_UNASKED, "unknown")),
        (changed(drained=True), (Found.MAIN_DRAINED, "warning"), (Found.CREDENTIAL_GOOD, "ok")),
        (changed(reach=Reach.AWAY, login=Login.UNASKED), (Found.MAIN_AWAY, "problem"),
         (Found.CREDENTIAL_UNCHECKED, "unknown")),
        (changed(reach=Reach.AWAY, login=Login.UNASKED, expires=None), (Found.MAIN_AWAY, "problem"),
         (Found.CREDENTIAL_UNASKED, "unknown")),
        (changed(reach=Reach.UNDATED, login=Login.UNASKED), (Found.MAIN_UNDATED, "problem"),
         (Found.CREDENTIAL_UNCHECKED, "unknown")),
        (changed(skew=9.0), (Found.MAIN_REACHED, "ok"), (Found.CREDENTIAL_GOOD, "ok")),
        (changed(skew=-20.0), (Found.MAIN_CLOCK, "warning"), (Found.CREDENTIAL_GOOD, "ok")),
        (changed(skew=3600.0), (Found.MAIN_CLOCK, "problem"), (Found.CREDENTIAL_GOOD, "ok")),
        (changed(reach=Reach.OTHER, login=Login.UNASKED), (Found.MAIN_OTHER, "problem"),
         (Found.CREDENTIAL_UNCHECKED, "unknown")),
        (changed(login=Login.REFUSED), (Found.MAIN_REACHED, "ok"), (Found.CREDENTIAL_REVOKED, "problem")),
        (changed(login=Login.REFUSED, expires=NOW - 1), (Found.MAIN_REACHED, "ok"),
         (Found.CREDENTIAL_EXPIRED, "problem")),
        (changed(stored=False), (Found.MAIN_REACHED, "ok"), (Found.CREDENTIAL_MISSING, "problem")),
        (changed(expires=None), (Found.MAIN_REACHED, "ok"), (Found.CREDENTIAL_ACCEPTED, "ok")),
        (changed(age=4 * DAY), (Found.MAIN_REACHED, "ok"), (Found.CREDENTIAL_OLD, "warning")),
        (changed(ENDED, expires=NOW + DAY), (Found.MAIN_REACHED, "ok"), (Found.CREDENTIAL_OLD, "warning")),
    ],
)  # fmt: skip
def test_a_host_that_its_main_machine_refuses_looks_well(
    agent: Agent | None, main: tuple[Found, str], credential: tuple[Found, str]
) -> None:
    for wanted, expected in ((CheckId.MAIN_MACHINE, main), (CheckId.CREDENTIAL, credential)):
        [finding] = judged(wanted, agent=agent)
        assert (finding.reason.code, finding.verdict.value) == expected
        assert finding.fixes or finding.verdict is Verdict.OK
        assert render(finding.reason)


def test_a_wrong_clock_hides_that_the_host_is_drained() -> None:
    found = judged(CheckId.MAIN_MACHINE, agent=changed(skew=3600.0, drained=True))
    assert [each.reason.code for each in found] == [Found.MAIN_CLOCK, Found.MAIN_DRAINED]


def test_a_host_with_a_kubeconfig_of_its_own_needs_the_packages_of_a_fleet() -> None:
    for agent, found in ((KUBELET, Found.EXTRAS_NOT_NEEDED), (AGENT, Found.EXTRAS_MISSING)):
        [finding] = judged(CheckId.EXTRAS, agent=agent, extras=("psycopg",))
        assert finding.reason.code is found


@pytest.mark.parametrize(
    ("agent", "machine", "step", "words"),
    [
        (AGENT, None, Next.LIST_HOSTS, "runyard host list"),
        (AGENT, RUNNING, Next.CONNECT_GITHUB, "runyard github connect"),
        (ENDED, None, Next.START_AGENT, "launchctl kickstart x"),
        (changed(running=False, pid=0, installed=False), None, Next.START_AGENT, "runyard agent --joined"),
        (changed(login=Login.REFUSED), None, Next.FIX, "runyard doctor"),
        (KUBELET, None, Next.LIST_NODES, "kubectl get nodes"),
        (Agent(data="/x", left=True), None, Next.START_LEFT, "runyard doctor"),
        (Agent(data="/x"), None, Next.START, "runyard up"),
    ],
)  # fmt: skip
def test_a_host_is_sent_to_start_a_second_fleet_on_its_machine(
    agent: Agent, machine: Machine | None, step: Next, words: str
) -> None:
    checks = (CheckId.AGENT, CheckId.MAIN_MACHINE, CheckId.CREDENTIAL)
    results = {each: judged(each, agent=agent) for each in checks}
    found = next_step(results, known(agent=agent, machine=machine))
    assert (found.reason.code, found.command) == (step, words)


# ── the next step ───────────────────────────────────────────────────────────────────────────────────


def known(**more: object) -> Facts:
    return facts("darwin", **more)


def finding(id: CheckId, code: Found) -> dict[CheckId, Findings]:
    case = next(each for each in CASES if each.found is code)
    return {id: case.check.judge(given_of(case))}


@pytest.mark.parametrize(
    ("results", "facts_now", "step", "words"),
    [
        (finding(CheckId.PYTHON, Found.PYTHON_TRANSLATED), known(), Next.NATIVE_PYTHON, "uv tool install"),
        (finding(CheckId.EXTRAS, Found.EXTRAS_MISSING), known(), Next.INSTALL_EXTRAS, "uv tool install"),
        (finding(CheckId.SLEEP, Found.SLEEPS), known(), Next.FIX, "runyard doctor"),
        (finding(CheckId.SLEEP, Found.SLEEP_HELD_OFF), known(), Next.START, "runyard up"),
        ({}, known(), Next.START, "runyard up"),
        ({}, known(github=Github(configured=True)), Next.START, "runyard up --github"),
        ({}, known(machine=RUNNING), Next.CONNECT_GITHUB, "runyard github connect"),
        ({}, known(machine=RUNNING, github=Github(configured=True)), Next.USE_GITHUB, "runyard up --github"),
        ({}, known(machine=Machine(running=True, real_github=True)), Next.OPEN_DASHBOARD, "runyard dashboard"),
    ],
)  # fmt: skip
def test_a_new_user_is_sent_to_the_wrong_step(
    results: dict[CheckId, Findings], facts_now: Facts, step: Next, words: str
) -> None:
    found = next_step(results, facts_now)
    assert found.reason.code is step
    assert found.command.startswith(words)


@pytest.mark.parametrize(
    ("results", "more", "words"),
    [
        (finding(CheckId.SLEEP, Found.SLEEPS), {}, "runyard doctor --data /d --agent-data /a"),
        ({}, {"agent": Agent(data="/x", left=True)}, "runyard doctor --data /d --agent-data /a"),
        ({}, {}, "runyard up --data /d"),
        ({}, {"github": Github(configured=True)}, "runyard up --github --data /d"),
        ({}, {"machine": RUNNING}, "runyard github connect"),
        ({}, {"machine": RUNNING, "github": Github(configured=True)}, "runyard up --github --data /d"),
        ({}, {"machine": Machine(running=True, real_github=True)}, "runyard dashboard --data /d"),
    ],
)  # fmt: skip
def test_the_next_step_is_of_another_data_directory_than_the_one_that_was_given(
    results: dict[CheckId, Findings], more: dict[str, object], words: str
) -> None:
    given = {"data_option": " --data /d", "agent_option": " --agent-data /a"}
    assert next_step(results, known(**given, **more)).command == words


def test_a_mac_without_tart_is_sent_to_install_it_before_other_problems_are_fixed() -> None:
    check = next(each for each in CHECKS if each.id is CheckId.TART)
    results = {
        **finding(CheckId.SLEEP, Found.SLEEPS),
        CheckId.TART: check.judge(_given(check, ended=Ended.MISSING)),
    }
    found = next_step(results, known())
    assert (found.reason.code, found.command) == (
        Next.INSTALL_TART,
        "brew install cirruslabs/cli/tart",
    )
