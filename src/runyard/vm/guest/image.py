"""Builds an image for process VMs: a directory.

    boot.sh …     what a VM executes, and its helpers; owned by the poller, a job cannot change them
    work/         the initial content of the VM's work folder, owned by the job. The runner is in work/runner/

The packaged scripts are in this folder; a real VM's image gets the same ones.
"""

import hashlib
import os
import shutil
from pathlib import Path

SCRIPTS = Path(__file__).parent
_PROGRAMS = ("boot.sh", "inject-env.sh", "dispatch-poll.sh", "job-started.sh", "json-field.sh")
_PARTS = ("lib.sh", "post.py", "become.py", "newest.py")
ID = "image.id"
_LARGE = 1 << 20
_COMPILED = "__pycache__"  # written when a program was run in place; not part of the content


def build_image(target: Path, *, runner: Path, scripts: Path = SCRIPTS) -> Path:
    """Builds an image of the guest's scripts and a runner (a directory with run.sh).

    An older one is replaced; one of the same content is left as it is. Its `image.id` identifies the content, so that
    a host that has pulled it notices a newer one under the same name.
    """
    if not (runner / "run.sh").is_file():
        raise FileNotFoundError(f"{runner} holds no run.sh")
    identity = _identity(runner, scripts)
    if image_id(target) == identity:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o755)
    for name in (*_PROGRAMS, *_PARTS):
        shutil.copyfile(scripts / name, fresh / name)
        (fresh / name).chmod(
            0o755 if name in _PROGRAMS else 0o644
        )  # an archive may have lost the modes
    skip = shutil.ignore_patterns(_COMPILED)
    shutil.copytree(runner, fresh / "work" / "runner", symlinks=True, ignore=skip)
    (fresh / "work" / "runner" / "run.sh").chmod(0o755)
    (fresh / ID).write_text(identity, encoding="ascii")
    shutil.rmtree(target, ignore_errors=True)
    return fresh.replace(target)


def image_id(image: Path) -> str:
    """The content's identity; empty if the image has none."""
    try:
        return (image / ID).read_text(encoding="ascii", errors="replace")[:128].strip()
    except OSError:
        return ""


def _identity(runner: Path, scripts: Path) -> str:
    parts = [(name, scripts / name) for name in (*_PROGRAMS, *_PARTS)]
    parts += [(f"runner/{path.relative_to(runner)}", path) for path in sorted(runner.rglob("*"))]
    digest = hashlib.sha256()
    for name, path in parts:
        if path.is_symlink() or not path.is_file() or path.parent.name == _COMPILED:
            continue
        info = path.stat()
        large = info.st_size > _LARGE  # a real runner has hundreds of megabytes of libraries
        what = f"{info.st_size} {info.st_mtime_ns}".encode() if large else path.read_bytes()
        digest.update(f"{name}\0{info.st_mode & 0o111}\0{len(what)}\0".encode() + what)
    return digest.hexdigest()
