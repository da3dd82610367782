"""Tests the isolation of process VMs, as far as this machine supports it, and its description."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.conftest import Absent
from tests.vm.guest_harness import DRAIN, JIT, TOKEN, Server
from tests.vm.process_harness import WAYS, ProcessHarness, Scenario, Way, home, isolation, run_on

from runyard.vm.contract import VmState
from runyard.vm.process import probe, sandbox, staging
from runyard.vm.process.isolation import Isolation
from runyard.vm.process.limits import Limits
from runyard.vm.process.probe import probe_isolation
from runyard.vm.process.users import claim
from runyard.vm.shim.processes import descendants, table

APART: tuple[Way, ...] = ("bwrap-users", "bwrap", "users", "one-user")
PAIRS: tuple[Way, ...] = ("bwrap-users", "users")
Run = Callable[[Scenario], None]


def found(way: Way, absent: Absent) -> Isolation:
    held = isolation(way)
    if isinstance(held, str):
        absent(f"a machine for VMs as processes, {way}", held)
    return held


# ── the whole guest ─────────────────────────────────────────────────────────────────────────────

# A job that searches for the token in all files that it can read, and prints its user.
SEARCHING = r"""#!/bin/sh
{
    grep -rl '[t]he-token-that' /proc/[0-9]*/environ /proc/[0-9]*/cmdline "$RUNYARD_VM_DIR" "$TMPDIR" 2>/dev/null
    cat "$RUNYARD_VM_DIR/env/sa_token" "$RUNYARD_VM_DIR/run/headers" 2>/dev/null
    ls "$RUNYARD_VM_DIR/state" 2>/dev/null
} >found
id -u >who
cat "$2" >jit
echo 99 2>/dev/null >"$RUNYARD_STATUS_DIR/runner-rc"
exit 5
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_job_runs_and_cannot_find_the_token(way: Way, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_guest_image(SEARCHING)
        with Server([(204, b""), JIT]) as server:
            env = {"RUNYARD_POLL_PAUSE": "0", "RUNYARD_JIT_FILE": "1"}
            directory = await harness.create(
                "vm", token=TOKEN, TUIST_RUNNER_DISPATCH_URL=server.url, **env
            )
            await harness.driver.start("vm")
            ended = await harness.exited("vm")
        assert (ended.exit_code, ended.exit_reason) == (5, "the guest reported 5")
        seen = (directory.work / "runner" / "found").read_text().splitlines()
        if way == "plain":  # the same user can read the shim's folder, which holds no token
            seen = [line for line in seen if "/" in line or TOKEN in line]
        assert seen == []
        assert (directory.work / "runner" / "jit").read_text() == "c2VjcmV0+/==\n"
        who = (directory.work / "runner" / "who").read_text().strip()
        assert (who == "1") == (way in PAIRS)

    run_on(found(way, absent), scenario)


@pytest.mark.parametrize("way", WAYS)
def test_a_drained_guest_completes(way: Way, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_guest_image("#!/bin/sh\n")
        with Server([DRAIN]) as server:
            await harness.create("vm", token=TOKEN, TUIST_RUNNER_DISPATCH_URL=server.url)
            await harness.driver.start("vm")
            ended = await harness.exited("vm")
        assert (ended.exit_code, ended.exit_reason) == (0, "completed")

    run_on(found(way, absent), scenario)


# ── other VMs ───────────────────────────────────────────────────────────────────────────────────

SPY = """#!/bin/sh
target=$(sed -n 's/^TARGET=//p' "$RUNYARD_ENV_DIR/tuist.env")
[ -n "$target" ] || { echo up >"$RUNYARD_STATUS_DIR/up"; exec sleep 86400; }
{
    ls "$target" "$target/env" "$target/work"
    cat "$target/env/sa_token" "$target/env/tuist.env" "$target/spec.json"
    echo forged >"$target/status/runner-rc"
    ls "$target/.."
} >"$RUNYARD_STATUS_DIR/seen" 2>/dev/null
for pid in $(sed -n 's/^PIDS=//p' "$RUNYARD_ENV_DIR/tuist.env"); do kill -9 "$pid"; done 2>/dev/null
echo 0 >"$RUNYARD_STATUS_DIR/runner-rc"
"""


@pytest.mark.parametrize("way", APART)
def test_a_vm_cannot_read_files_or_kill_processes_of_another(way: Way, absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(SPY)
        victim = await harness.create("victim", token=TOKEN)
        up = harness.pipe("victim", "up")
        await harness.driver.start("victim")
        assert await up.line() == "up"
        shim = int((victim.state / "started").read_text())
        pids = [shim, *(process.pid for process in descendants(shim, table()))]
        assert len(pids) > 2
        spy = await harness.create("spy", TARGET=str(victim.path), PIDS=" ".join(map(str, pids)))
        await harness.driver.start("spy")
        await harness.exited("spy")
        assert (spy.status / "seen").read_text() == ""
        assert not (victim.status / "runner-rc").exists()
        assert (await harness.view("victim")).state is VmState.RUNNING
        alive = [process.pid for process in descendants(shim, table())]
        assert [pid for pid in pids[1:] if pid not in alive] == []

    run_on(found(way, absent), scenario)


@pytest.mark.parametrize("way", ["bwrap-users", "bwrap"])
def test_a_sandbox_hides_the_hosts_files(way: Way, absent: Absent) -> None:
    boot = """#!/bin/sh
ls / /home /root /var /srv /etc/shadow /etc/ssh 2>/dev/null >"$RUNYARD_STATUS_DIR/seen"
ls /proc | grep -c '^[0-9]' >"$RUNYARD_STATUS_DIR/processes"
hostname >"$RUNYARD_STATUS_DIR/name" 2>/dev/null || uname -n >"$RUNYARD_STATUS_DIR/name"
for path in /usr/x /etc/x /vm/x /vm/image/x; do : >"$path"; done 2>/dev/null && echo wrote >>"$RUNYARD_STATUS_DIR/seen"
exit 0
"""

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(boot)
        directory = await harness.create("inside")
        await harness.driver.start("inside")
        await harness.exited("inside")
        seen = (directory.status / "seen").read_text()
        assert "wrote" not in seen and "/etc/shadow" not in seen and "/home" not in seen
        assert int((directory.status / "processes").read_text()) < 10
        assert (directory.status / "name").read_text() == "inside\n"

    run_on(found(way, absent), scenario)


def test_a_python_installed_around_the_data_directory_does_not_show_it(tmp_path: Path) -> None:
    local = tmp_path / ".local"  # a Python that was built with --prefix=~/.local
    (local / "share" / "runyard").mkdir(parents=True)
    directory = staging.skeleton(local / "share" / "runyard" / "vm", env=(), token="secret")
    python = Isolation(kind="bwrap", guest_python=f"{local}/bin/python3", guest_prefix=str(local))
    argv = sandbox.order(directory, python, users=(), limits=Limits())["argv"]
    mounted = [source for word, source in pairwise(argv) if word in ("--ro-bind", "--ro-bind-try")]
    assert f"{local}/bin" in mounted and f"{local}/lib" in mounted
    data = directory.path.parent
    assert [path for path in mounted if data.is_relative_to(path)] == []


NAMESPACE = """#!/bin/sh
exec "$RUNYARD_PYTHON" -I -S -c '
import ctypes, os
answer = ctypes.CDLL(None).unshare(0x10000000)
with open(os.environ["RUNYARD_STATUS_DIR"] + "/answer", "w") as file:
    file.write(str(answer))
'
"""


@pytest.mark.parametrize("way", ["bwrap-users", "bwrap"])
def test_a_sandbox_forbids_user_namespaces(way: Way, absent: Absent) -> None:
    held = found(way, absent)
    if (
        not held.closed and way == "bwrap"
    ):  # with its own users guest_init.py forbids them, not bubblewrap
        absent("a bubblewrap that can forbid user namespaces", "install 0.8 or newer")

    assert held.closed

    async def answer(harness: ProcessHarness) -> str:
        harness.put_image(NAMESPACE)
        directory = await harness.create("vm")
        await harness.driver.start("vm")
        await harness.exited("vm")
        return (directory.status / "answer").read_text()

    async def shut(harness: ProcessHarness) -> None:
        assert await answer(harness) == "-1"

    async def open_(harness: ProcessHarness) -> None:
        assert await answer(harness) == "0"

    run_on(held, shut)
    run_on(msgspec.structs.replace(held, closed=False), open_)


def test_a_bwrap_that_cannot_forbid_namespaces_is_used_without_that(
    tmp_path: Path, absent: Absent
) -> None:
    held = found("bwrap", absent)
    old = tmp_path / "bwrap"
    old.write_text(
        '#!/bin/sh\ncase " $* " in *" --disable-userns "*)\n'
        f'echo "bwrap: Unknown option --disable-userns" >&2; exit 1;; esac\nexec {held.bwrap} "$@"\n'
    )
    old.chmod(0o755)
    closed = msgspec.structs.replace(held, bwrap=str(old), closed=True)
    with home() as directory:
        assert "--disable-userns" in asyncio.run(probe._trial(directory, closed))
        assert (
            asyncio.run(probe._trial(directory, msgspec.structs.replace(closed, closed=False)))
            == ""
        )


# ── limits ──────────────────────────────────────────────────────────────────────────────────────

FORK_BOMB = """#!/bin/sh
exec "$RUNYARD_PYTHON" -I -S -c '
import os, sys
count = 0
try:
    while count < 500:
        if os.fork() == 0:
            os.read(os.pipe()[0], 1)
        count += 1
except OSError:
    pass
with open(os.environ["RUNYARD_STATUS_DIR"] + "/forked", "w") as file:
    file.write(str(count))
'
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_bomb_is_limited_where_the_limit_is_enforced_and_always_killed(
    way: Way, absent: Absent
) -> None:
    held = found(way, absent)

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(FORK_BOMB)
        directory = await harness.create("storm")
        await harness.driver.start("storm")
        await harness.exited("storm")
        forked = int((directory.status / "forked").read_text())
        assert forked < 64 if held.counts_processes else forked == 500

    run_on(held, scenario, Limits(pids=64))


@pytest.mark.parametrize("way", WAYS)
def test_one_file_cannot_exceed_the_disk_limit(way: Way, absent: Absent) -> None:
    boot = """#!/bin/sh
dd if=/dev/zero of="$RUNYARD_WORK_DIR/big" bs=1M count=64 2>/dev/null
echo $? >"$RUNYARD_STATUS_DIR/runner-rc"
"""

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(boot)
        directory = await harness.create("vm")
        await harness.driver.start("vm")
        ended = await harness.exited("vm")
        assert ended.exit_code not in (0, None)
        assert (directory.work / "big").stat().st_size == 8 << 20

    run_on(found(way, absent), scenario, Limits(disk_mb=8))


@pytest.mark.parametrize("way", WAYS)
def test_a_vm_over_its_disk_limit_is_ended(way: Way, absent: Absent) -> None:
    boot = """#!/bin/sh
for n in 1 2 3 4 5 6 7 8; do
    dd if=/dev/zero of="$RUNYARD_WORK_DIR/$n" bs=1M count=4 2>/dev/null
done
exec sleep 86400
"""

    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image(boot)
        await harness.create("vm")
        await harness.driver.start("vm")
        ended = await harness.exited("vm")
        assert ended.exit_code is None
        assert re.fullmatch(r"used \d+ MiB of disk, 8 MiB are allowed", ended.exit_reason)

    run_on(found(way, absent), scenario, Limits(disk_mb=8, disk_watch_seconds=0.05))


def test_the_console_log_is_bounded(absent: Absent) -> None:
    async def scenario(harness: ProcessHarness) -> None:
        harness.put_image("#!/bin/sh\nhead -c 8000000 /dev/zero\necho the end\n")
        directory = await harness.create("vm")
        await harness.driver.start("vm")
        await harness.exited("vm")
        logs = [directory.state / "console.log", directory.state / "console.log.1"]
        assert sum(path.stat().st_size for path in logs) <= 2 << 20
        assert logs[0].read_bytes().endswith(b"the end\n")

    run_on(found("plain", absent), scenario)


# ── the probe ───────────────────────────────────────────────────────────────────────────────────


def test_the_best_isolation_that_works_is_chosen_and_described(tmp_path: Path) -> None:
    with home() as directory:
        registry = str(tmp_path / "users")
        chosen = asyncio.run(probe_isolation(directory, registry=registry))
        without = asyncio.run(probe_isolation(directory, want="none", registry=registry))
        left = list(directory.iterdir())
    best = next(way for way in WAYS if not isinstance(isolation(way), str))
    expected = isolation(best)
    assert isinstance(expected, Isolation)
    assert (chosen.kind, chosen.users) == (expected.kind, expected.users)
    assert without.kind == "none"
    assert "cpu: " in chosen.limits and "disk: watched" in chosen.limits
    for limit in ("cpu", "memory", "processes"):
        unreported = (
            f"{limit}: not enforced" in chosen.limits
            and f"{limit}: not enforced" not in chosen.detail
        )
        assert not unreported, chosen.detail
    assert left == []


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is a program for Linux")
def test_a_bwrap_that_does_not_work_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text(
        "#!/bin/sh\necho 'bwrap: no permissions to create a namespace' >&2\nexit 1\n"
    )
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with home() as directory:
        chosen = asyncio.run(probe_isolation(directory, registry=str(tmp_path / "users")))
    assert chosen.kind == "none"
    assert "no permissions to create a namespace" in chosen.detail


def test_a_home_that_vm_users_cannot_enter_is_noticed(tmp_path: Path, absent: Absent) -> None:
    if os.geteuid() != 0:
        absent("root", "run the tests as root too")
    (tmp_path / "shut").mkdir(mode=0o700)
    registry = str(tmp_path / "users")
    chosen = asyncio.run(
        probe_isolation(tmp_path / "shut" / "home", want="none", registry=registry)
    )
    assert (chosen.kind, chosen.users) == ("none", "")
    assert "not no sandbox" in chosen.detail


# ── users ───────────────────────────────────────────────────────────────────────────────────────


def test_two_vms_of_one_machine_never_have_the_same_user(tmp_path: Path) -> None:
    way = Isolation(users="pair", registry=str(tmp_path / "users"), uid_base=910_000_000)
    owners = [tmp_path / name for name in ("a", "b", "c")]
    for owner in owners:
        owner.mkdir()
    assert claim(way, owners[0]) == (910_000_000, 910_000_001)
    assert claim(way, owners[1], tmp_path / "not yet") == (910_000_002, 910_000_003)
    owners[0].rmdir()
    assert claim(way, owners[2]) == (910_000_000, 910_000_001)
    owners[1].rename(tmp_path / "not yet")
    assert claim(way, tmp_path) == (910_000_004, 910_000_005)


def test_a_user_with_running_processes_is_not_claimed(tmp_path: Path, absent: Absent) -> None:
    if os.geteuid() != 0:
        absent("root", "run the tests as root too")
    way = Isolation(users="one", registry=str(tmp_path / "users"), uid_base=900_000_000)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=900_000_000, cwd="/"):
        assert claim(way, tmp_path) == (900_000_002,)


def test_a_uid_of_a_real_user_is_refused() -> None:
    with pytest.raises(ValueError, match="is 1000; it must be at least"):
        Isolation(uid_base=1000)
