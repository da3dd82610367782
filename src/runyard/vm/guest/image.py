"""Lay out an image for VMs that are processes: a directory, nothing more.

    boot.sh …     what a VM executes, and what that needs; the poller's, which a job cannot change
    work/         how the VM's work folder begins; the job's own. The runner lies in work/runner/

The packaged scripts are in this folder; a real VM's image gets the same ones.
"""

import os
import shutil
from pathlib import Path

SCRIPTS = Path(__file__).parent
_PROGRAMS = ("boot.sh", "inject-env.sh", "dispatch-poll.sh", "job-started.sh", "json-field.sh")
_PARTS = ("lib.sh", "post.py", "become.py")


def build_image(target: Path, *, runner: Path, scripts: Path = SCRIPTS) -> Path:
    """Make an image of the guest's scripts and a runner (a directory with run.sh); replaces an older one."""
    if not (runner / "run.sh").is_file():
        raise FileNotFoundError(f"{runner} holds no run.sh")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o755)
    for name in (*_PROGRAMS, *_PARTS):
        shutil.copyfile(scripts / name, fresh / name)
        (fresh / name).chmod(
            0o755 if name in _PROGRAMS else 0o644
        )  # an archive may have lost the modes
    shutil.copytree(runner, fresh / "work" / "runner", symlinks=True)
    (fresh / "work" / "runner" / "run.sh").chmod(0o755)
    shutil.rmtree(target, ignore_errors=True)
    return fresh.replace(target)
