"""Stand-ins for launchd and systemd: `launchctl`, `systemctl`, `loginctl`, `defaults` and `ps` on a PATH of their own.

All of them are this file, run as a program under another name. The state is one JSON file, the time another one, which
the tests' clock moves; so a throttled restart takes no time. What a service's program does is in its arguments:
`--dies-after=2` ends it two seconds after each start, without it the program runs for ever. It writes a line to its log
at each start.

They model what the manuals and the recorded behaviour say: a job that is still ending refuses a bootstrap, a disabled
one as well, a throttled registration is accepted and does nothing, a changed unit needs a daemon-reload.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def words(line: str) -> list[str]:
    """A line of quoted words, as systemd splits it (systemd.syntax): escapes, specifiers, variables."""
    found = []
    for quoted in re.findall(r'"((?:[^"\\]|\\.)*)"(?= |$)', line):
        plain = re.sub(r"\\(.)", r"\1", quoted)
        assert not re.search(r"(?<!%)(?:%%)*%(?!%)", plain), f"a specifier in {line}"
        found.append(plain.replace("%%", "%"))
    return [found[0], *(word.replace("$$", "$") for word in found[1:])] if found else []


def sections(text: str) -> dict[str, list[tuple[str, str]]]:
    """A unit file: the assignments of each section, in order."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in text.split("\n"):
        if line.startswith("["):
            assignments = found.setdefault(line.strip("[]"), [])
        elif line:
            name, _, value = line.partition("=")
            assignments.append((name, value))
    return found


class World:
    """The state, moved to the present at each call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = float((folder / "now").read_text())
        self.state: Json = json.loads((folder / "state.json").read_text())
        for job in self.jobs.values():
            self.advance(job)

    @property
    def jobs(self) -> dict[str, Json]:
        return self.state["jobs"]

    def save(self) -> None:
        (self.folder / "state.json").write_text(json.dumps(self.state, indent=1))

    def note(self, words: list[str]) -> None:
        with (self.folder / "calls").open("a") as file:
            file.write(" ".join(words) + "\n")

    def start(self, job: Json, at: float) -> None:
        self.state["last_pid"] += 1
        job.update(pid=self.state["last_pid"], started=at, next=None, runs=job["runs"] + 1)
        with Path(job["log"]).open("a") as log:
            log.write(f"start {job['runs']} of {' '.join(job['argv'][1:])}\n")

    def stop(self, job: Json) -> None:
        if job["pid"]:
            job["last_exit"] = 0
        job.update(pid=0, next=None)

    def advance(self, job: Json) -> None:
        """Let the program die and start again until now."""
        dies = [each.partition("=")[2] for each in job["argv"] if each.startswith("--dies-after=")]
        while True:
            if job.get("ending") is not None and job["ending"] <= self.now:
                job["gone"] = True
            if job["pid"] and dies and self.now >= job["started"] + float(dies[0]):
                died = job["started"] + float(dies[0])
                job.update(pid=0, last_exit=1, next=max(died, job["started"] + job["throttle"]))
            elif not job["pid"] and job["next"] is not None and job["next"] <= self.now:
                self.start(job, job["next"])
            else:
                return


def new_job(argv: list[str], log: str, throttle: int) -> Json:
    return {
        "argv": argv,
        "log": log,
        "throttle": throttle,
        "pid": 0,
        "started": 0.0,
        "next": None,
        "runs": 0,
        "last_exit": None,
    }


def launchctl(world: World, argv: list[str]) -> int:
    """The subcommands of launchctl that are used, with its codes."""
    verb, target = argv[0], argv[-1]
    if world.state.get("no_session") and verb in {"bootstrap", "bootout", "print", "kickstart"}:
        sys.stderr.write("Could not find domain for user gui: 501\n")
        return 125 if verb == "bootstrap" else 112
    label = target.rpartition("/")[2]
    for name in [name for name, job in world.jobs.items() if job.get("gone")]:
        del world.jobs[name]
    job = world.jobs.get(label)
    match verb:
        case "enable":
            world.state["disabled"] = [each for each in world.state["disabled"] if each != label]
            return 0
        case "print-disabled":
            say("disabled services = {")
            for each in world.state["disabled"]:
                say(f'\t"{each}" => disabled')
            say("}")
            return 0
        case "bootstrap":
            return _bootstrap(world, Path(target))
        case _ if job is None:
            missing = {"bootout": (3, "Boot-out failed: 3: No such process")}
            code, message = missing.get(verb, (113, f'Could not find service "{label}" in domain'))
            sys.stderr.write(message + "\n")
            return code
        case "print":
            _print_job(target, label, job)
            return 0
        case "bootout":
            world.stop(job)
            job["ending"] = world.now + world.state.get("ends_within", 0.0)
            if job["ending"] <= world.now:
                del world.jobs[label]
                return 0
            sys.stderr.write("Boot-out failed: 36: Operation now in progress\n")
            return 36
        case "kickstart":
            assert argv[1] == "-k"
            world.stop(job)
            world.start(job, world.now)
            return 0
    raise AssertionError(argv)


def _bootstrap(world: World, path: Path) -> int:
    import plistlib  # noqa: PLC0415 slow to load, and most calls of the stand-ins do not need it

    content = plistlib.loads(path.read_bytes())
    label = content["Label"]
    if label in world.state["disabled"]:
        sys.stderr.write("Bootstrap failed: 119: Service is disabled\n")
        return 119
    if label in world.jobs or world.state.get("bootstrap_fails", 0):
        world.state["bootstrap_fails"] = max(0, world.state.get("bootstrap_fails", 0) - 1)
        sys.stderr.write("Bootstrap failed: 5: Input/output error\n")
        return 5
    job = new_job(
        content["ProgramArguments"], content["StandardOutPath"], content["ThrottleInterval"]
    )
    world.jobs[label] = job
    if content["RunAtLoad"] and not world.state.get("throttled"):
        world.start(job, world.now)
    return 0


def _print_job(target: str, label: str, job: Json) -> None:
    code = "(never exited)" if job["last_exit"] is None else str(job["last_exit"])
    say(f"{target} = {{")
    say("\tactive count = 1")
    say(f"\tstate = {'running' if job['pid'] else 'spawn scheduled'}")
    say("\n\tdefault environment = {\n\t\tpid = 1\n\t}\n")
    say(f"\truns = {job['runs']}")
    if job["pid"]:
        say(f"\tpid = {job['pid']}")
    say(f"\tlast exit code = {code}")
    say(f"\n\tspawn type = interactive (4)\n\tlabel = {label}\n}}")


def systemctl(world: World, argv: list[str]) -> int:
    """The verbs of `systemctl --user` that are used."""
    assert argv[0] == "--user"
    if world.state.get("no_session"):
        sys.stderr.write("Failed to connect to bus: No medium found\n")
        return 1
    verb, unit = argv[1], argv[2] if len(argv) > 2 else ""
    folder = Path(os.environ["HOME"]) / ".config" / "systemd" / "user"
    link = folder / "default.target.wants" / unit
    loaded, job = world.state["units"].get(unit), world.jobs.get(unit)
    match verb:
        case "is-system-running":
            say("running")
        case "daemon-reload":
            units = {each.name: each.read_text() for each in folder.glob("*.service")}
            world.state["units"] = units
        case "show":
            _show(loaded, job)
        case "enable":
            if loaded is None:
                sys.stderr.write(f"Failed to enable unit: Unit file {unit} does not exist.\n")
                return 1
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(folder / unit)
        case "disable":
            link.unlink(missing_ok=True)
        case "is-enabled":
            say("enabled" if link.is_symlink() else "disabled")
            return 0 if link.is_symlink() else 1
        case "restart":
            return _restart(world, unit, loaded)
        case "stop":
            if job is not None:
                world.stop(job)
        case "reset-failed":
            return 1
        case _:
            raise AssertionError(argv)
    return 0


def _show(loaded: str | None, job: Json | None) -> None:
    waits = job is not None and job["next"] is not None
    say(f"ActiveState={'active' if job and job['pid'] else 'activating' if waits else 'inactive'}")
    say(f"LoadState={'loaded' if loaded is not None else 'not-found'}")
    say(f"MainPID={job['pid'] if job else 0}")
    say(f"NRestarts={max(0, job['runs'] - 1) if job else 0}")
    ended = job is not None and not job["pid"] and job["last_exit"] is not None
    say(f"ExecMainCode={1 if ended else 0}")
    say(f"ExecMainStatus={job['last_exit'] if job and ended else 0}")


def _restart(world: World, unit: str, text: str | None) -> int:
    if text is None:
        sys.stderr.write(f"Failed to restart {unit}: Unit {unit} not found.\n")
        return 5
    service = dict(sections(text)["Service"])
    argv = words(service["ExecStart"])
    if "--cannot-start" in argv:
        sys.stderr.write(f"Job for {unit} failed because the control process exited.\n")
        return 1
    log = service["StandardOutput"].removeprefix("append:").replace("%%", "%")
    world.jobs[unit] = new_job(argv, log, int(service["RestartSec"]))
    world.start(world.jobs[unit], world.now)
    return 0


def loginctl(world: World, argv: list[str]) -> int:
    assert argv[0] == "show-user" and argv[2:] == ["--property=Linger"]
    say(f"Linger={'yes' if world.state.get('linger') else 'no'}")
    return 0


def defaults(world: World, argv: list[str]) -> int:
    assert argv == ["read", "/Library/Preferences/com.apple.loginwindow", "autoLoginUser"]
    if not world.state.get("auto_login"):
        sys.stderr.write("The domain/default pair does not exist\n")
        return 1
    say(world.state.get("login_user", "m1"))
    return 0


def fdesetup(world: World, argv: list[str]) -> int:
    assert argv == ["status"]
    say(world.state.get("filevault", "FileVault is Off."))
    return 0


def id_(world: World, argv: list[str]) -> int:
    assert argv[0] == "-un"
    say("m1")
    return 0


def ps(world: World, argv: list[str]) -> int:
    """The age of a process: `[[dd-]hh:]mm:ss`."""
    assert argv[:3] == ["-o", "etime=", "-p"]
    for job in world.jobs.values():
        if job["pid"] == int(argv[3]):
            minutes, seconds = divmod(int(world.now - job["started"]), 60)
            hours, minutes = divmod(minutes, 60)
            days, hours = divmod(hours, 24)
            say(f"{f'{days:02}-' if days else ''}{hours:02}:{minutes:02}:{seconds:02}")
            return 0
    return 1


PROGRAMS = {
    "launchctl": launchctl,
    "systemctl": systemctl,
    "loginctl": loginctl,
    "defaults": defaults,
    "fdesetup": fdesetup,
    "id": id_,
    "ps": ps,
}


def main() -> int:
    name, argv = Path(sys.argv[0]).stem, sys.argv[1:]
    world = World(Path(__file__).parent)
    world.note([name, *argv])
    code = PROGRAMS[name](world, argv)
    world.save()
    return code


if __name__ == "__main__":
    sys.exit(main())
