"""Make a VM's directory: its folders, what is staged for the guest, and whose each of them is.

    whole VM   poller, passable for the job          env status run   the poller's alone
    image      the poller's, readable for the job    work tmp         the job's
    state      ours: no guest can write its own exit record

Where poller and job are one user, all but `state` is that user's; where everything runs as we do, nothing is given
away.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from runyard import proc
from runyard.vm.contract import DriverFailed
from runyard.vm.guest import envfile
from runyard.vm.process.layout import Place

_PATIENCE = 600.0


def skeleton(path: Path, *, env: Iterable[tuple[str, str]], token: str) -> Place:
    """The folders and what is staged; everything still ours."""
    place = Place(path)
    path.mkdir(mode=0o700)
    for folder in (place.state, place.env, place.status, place.run, place.work, place.tmp):
        folder.mkdir(mode=0o700)
    for pipe in ("alive", "control"):
        os.mkfifo(place.state / pipe, 0o600)
    (place.state / "lock").touch(mode=0o600)
    private(place.env / "tuist.env", envfile.encode(env))
    if token:
        private(place.env / "sa_token", token.encode())
    return place


def private(path: Path, data: bytes) -> None:
    """A file that only its owner can read, from its first moment on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


async def give(place: Place, users: tuple[int, ...]) -> None:
    """Hand the folders to the guest's users."""
    if not users:
        return
    poller, job = users[0], users[-1]
    place.path.chmod(0o710)
    await _own(poller, job, [place.image], recursive=True)
    await _own(poller, poller, [place.env, place.status, place.run], recursive=True)
    await _own(job, job, [place.work, place.tmp], recursive=True)
    await _own(poller, job, [place.path], recursive=False)
    # The job reads and runs the image, and nobody but the poller writes there.
    await _do(["chmod", "-R", "u+rwX,g=u-w,o=", str(place.image)])


async def _own(uid: int, gid: int, paths: list[Path], *, recursive: bool) -> None:
    flags = ["-R"] if recursive else []
    await _do(["chown", *flags, "-h", f"{uid}:{gid}", *map(str, paths)])


async def _do(argv: list[str]) -> None:
    done = await proc.run(argv, timeout=_PATIENCE)
    if done.code != 0:
        raise DriverFailed(done.stderr.decode(errors="replace").strip()[:500])
