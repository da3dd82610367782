"""What has to hold when a Pod's life is over, whatever was killed in it. Each check returns what is wrong."""

import contextlib
import os
import re
from pathlib import Path

from tests.node.crashes.effects import AGENT, JIT, SECRET, plain
from tests.node.crashes.host import CODE, FOREIGN, Host

_OURS = ("agent", "tart-home")  # below a host's folder: what the agent and its VMs write
_KEPT = re.compile(rf"/tart-home/(journal|knobs/)|{FOREIGN}")


def ran_once(host: Host, pod: str, vm: str) -> list[str]:
    """One `tart run` per uid; the job that was handed out ran at most once."""
    wrong = []
    if (runs := host.tart.runs(vm)) > 1:
        wrong.append(f"tart run {vm} was called {runs} times")
    if (begun := host.lines("begin", pod + "-")) > min(1, host.jobs.given[pod]):
        wrong.append(f"{host.jobs.given[pod]} jobs were handed out, {begun} have begun")
    return wrong


def one_result(host: Host, pod: str, victim: str) -> list[str]:
    """One terminal status, which agrees with what happened; the agent's death alone loses nothing."""
    found = host.ended.get(pod, [])
    if len(found) != 1:
        return [f"{len(found)} results: {found}"]
    (result,) = found
    finished = host.lines("end", pod + "-")
    wrong = []
    if victim in ("", AGENT) and not (result.code == CODE and finished == 1):
        wrong.append(f"only the agent was killed, and the job's result is {result}")
    if result.code == CODE and not finished:
        wrong.append(f"the result is the job's, which has not ended: {result}")
    if result.code in (0, -1) or result.phase != "Failed":
        wrong.append(f"no job of the matrix ends so: {result}")
    return wrong


def no_secret(host: Host) -> list[str]:
    """Neither a token nor a JIT configuration in a file, a log or an argument of a program."""
    wrong = []
    leaks = host.folder / "leaks"
    if leaks.exists():
        wrong.append(f"secrets in arguments: {leaks.read_text()}")
        leaks.unlink()
    for path in (*_files(host), host.log):
        with contextlib.suppress(OSError):
            if found := SECRET.search(path.read_bytes().decode(errors="replace")):
                what = "JIT configuration" if found[0] == JIT else "token"
                wrong.append(f"a {what} is in {path.relative_to(host.root)}")
    return wrong


def no_token_in_reach(host: Host) -> list[str]:
    """While the job runs, no file that was staged for its VM holds the token."""
    return [each for each in no_secret(host) if "a token is in" in each]


def others_untouched(host: Host) -> list[str]:
    """VMs and images of others are as they were."""
    listed = host.tart.storage.local(FOREIGN)
    wrong = []
    if not listed.pid:
        wrong.append(f"the VM {FOREIGN} of others does not run any more")
    if not list((host.tart.home / "cache").rglob("others*")):
        wrong.append("the image of others is gone")
    return wrong


def nothing_left(host: Host, usual: frozenset[str]) -> list[str]:
    """No process, file, record or lock of the Pod; `usual`: the files of a host that has run Pods."""
    files = frozenset(plain(str(path.relative_to(host.root))) for path in _files(host))
    wrong = [f"left: {each}" for each in sorted(files - usual)]
    wrong += [f"missing: {each}" for each in sorted(usual - files)]
    running = [each.name for each in host.tart.storage.locals() if each.pid]
    if running != [FOREIGN]:
        wrong.append(f"VM slots are used by {running}")
    return [*wrong, *processes(host)]


def files(host: Host) -> frozenset[str]:
    """The files of a host at rest."""
    return frozenset(plain(str(path.relative_to(host.root))) for path in _files(host))


def processes(host: Host) -> list[str]:
    """Processes of VMs of ours: by their mark, or by their arguments."""
    wrong = []
    vms = f"{host.root}/agent/vm/tart/vms/".encode()
    for pid in [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]:
        with contextlib.suppress(OSError):
            argv = Path(f"/proc/{pid}/cmdline").read_bytes()
            if vms in argv or vms in Path(f"/proc/{pid}/environ").read_bytes():
                words = argv.decode(errors="replace").replace("\0", " ")[-200:]
                wrong.append(f"process {pid} is left: {words}")
    return wrong


def _files(host: Host) -> list[Path]:
    """Every file that the agent, its shims and its VMs have written; folders may vanish meanwhile."""
    found = [
        Path(folder) / name
        for below in _OURS
        for folder, _, names in os.walk(host.root / below)
        for name in names
    ]
    return sorted(path for path in found if not _KEPT.search(str(path)) and path.is_file())
