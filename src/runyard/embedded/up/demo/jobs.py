"""The demo's twenty jobs: most succeed; four fail, leave a daemon, fill the disk or probe the sandbox.

Each is a shell script that runs in its own sandbox. The findings of the probing job are read from its log.
"""

import shlex
from pathlib import Path

import msgspec

DISK_TRY_MB = 192  # more than a sandbox may hold


class DemoJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job: its script and its expected conclusion."""

    name: str
    script: str
    conclusion: str = "success"
    reports: bool = False  # its log has findings about the sandbox


def plain(number: int, seconds: float) -> DemoJob:
    """A job that builds something, quickly."""
    script = f'echo "building part {number}"\nsleep {seconds:g}\necho done > result\ncat result\n'
    return DemoJob(name=f"build {number}", script=script)


def daemon_marker(run: str) -> str:
    """The name of the daemon that is left behind, in a process list."""
    return f"runyard-demo-daemon-{run}"


def jobs(run: str, hosts: Path) -> tuple[DemoJob, ...]:
    """All twenty, in the order in which they are queued.

    `run` makes the daemon's name unique, `hosts` is where this machine keeps its VMs.
    """
    failing = DemoJob(
        name="fails", script='echo "this one fails on purpose"\nexit 3\n', conclusion="failure"
    )
    daemon = DemoJob(
        name="leaves a daemon behind",
        script=(
            "cat > daemon.sh <<'END'\n"
            "trap '' TERM HUP INT\n"
            "while :; do sleep 1; done\n"
            "END\n"
            f"(setsid sh daemon.sh {daemon_marker(run)} >/dev/null 2>&1 </dev/null &) 2>/dev/null ||\n"
            f"  (nohup sh daemon.sh {daemon_marker(run)} >/dev/null 2>&1 </dev/null &)\n"
            'echo "left a daemon behind"\n'
        ),
    )
    probing = DemoJob(
        name="probes the sandbox", script=f"hosts={shlex.quote(str(hosts))}\n{_PROBE}", reports=True
    )
    filling = DemoJob(
        name="fills its disk",
        reports=True,
        script=(
            f"if dd if=/dev/zero of=fill bs=1048576 count={DISK_TRY_MB} 2>/dev/null\n"
            'then echo "disk: unlimited"; else echo "disk: limited"; fi\n'
            "rm -f fill\n"
        ),
    )
    special = {3: failing, 6: daemon, 9: probing, 12: filling}
    return tuple(special.get(number) or plain(number, _seconds(number)) for number in range(1, 21))


def _seconds(number: int) -> float:
    """Some jobs last longer, so that faults meet a running job."""
    return 3.0 if number in (1, 2, 8, 15) else 0.5


# Walks up from its own directory and tries to read what it finds beside the path. It also gets the directory of this
# machine's VMs: the protection must not depend on an unknown path.
_PROBE = r"""
here=$(pwd -P)
neighbour=no
token=no
place=$here
while [ -n "$place" ]; do
  place=$(dirname "$place")
  place=${place%/}
  for file in "$place"/sa_token "$place"/env/sa_token "$place"/run/headers /etc/tuist-sa-token; do
    if cat "$file" >/dev/null 2>&1; then token=yes; fi
  done
  for other in "$place"/*/ "$hosts"/*/vm/vms/*/; do
    case "$here/" in "$other"*) continue;; esac
    for file in "$other"env/tuist.env "$other"status/runner-rc; do
      if cat "$file" >/dev/null 2>&1; then neighbour=yes; fi
    done
    for file in "$other"env/sa_token "$other"run/headers; do
      if cat "$file" >/dev/null 2>&1; then neighbour=yes; fi
    done
  done
done
if env | grep -q 'eyJ'; then token=yes; fi
for process in /proc/[0-9]*; do
  for file in environ cmdline; do
    if tr '\0' '\n' < "$process/$file" 2>/dev/null | grep -q 'eyJhbGci'; then token=yes; fi
  done
done
echo "neighbour: $neighbour"
echo "token: $token"
"""
