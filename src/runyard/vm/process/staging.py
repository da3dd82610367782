"""Creates a VM's directory: its folders, the files staged for the guest, and their owners.

    whole VM   owner poller, the job may enter       env status run   poller only
    image      owner poller, the job may read        work tmp         job
    state      the agent's: no guest can write its own exit record

Where poller and job are one user, that user owns all but `state`; where everything runs as the agent's user, no owner
is changed.
"""

from collections.abc import Iterable
from pathlib import Path

from runyard import proc
from runyard.vm.contract import DriverFailed
from runyard.vm.guest import envfile
from runyard.vm.process.layout import VmDirectory
from runyard.vm.shim.directory import private

_TIMEOUT = 600.0


def skeleton(path: Path, *, env: Iterable[tuple[str, str]], token: str) -> VmDirectory:
    """Creates the folders and the staged files; the agent's user still owns everything."""
    directory = VmDirectory(path)
    path.mkdir(mode=0o700)
    directory.prepare()
    for folder in (
        directory.env,
        directory.status,
        directory.run,
        directory.work,
        directory.tmp,
    ):
        folder.mkdir(mode=0o700)
    private(directory.env / "tuist.env", envfile.encode(env))
    if token:
        private(directory.env / "sa_token", token.encode())
    return directory


async def set_owners(directory: VmDirectory, users: tuple[int, ...]) -> None:
    """Changes the owners of the folders to the guest's users."""
    if not users:
        return
    poller, job = users[0], users[-1]
    directory.path.chmod(0o710)
    await _own(poller, job, [directory.image], recursive=True)
    await _own(poller, poller, [directory.env, directory.status, directory.run], recursive=True)
    await _own(job, job, [directory.work, directory.tmp], recursive=True)
    await _own(poller, job, [directory.path], recursive=False)
    # The job reads and runs the image; only the poller may write there.
    await _do(["chmod", "-R", "u+rwX,g=u-w,o=", str(directory.image)])


async def _own(uid: int, gid: int, paths: list[Path], *, recursive: bool) -> None:
    flags = ["-R"] if recursive else []
    await _do(["chown", *flags, "-h", f"{uid}:{gid}", *map(str, paths)])


async def _do(argv: list[str]) -> None:
    done = await proc.run(argv, timeout=_TIMEOUT)
    if done.code != 0:
        raise DriverFailed(done.stderr.decode(errors="replace").strip()[:500])
