"""What the stand-ins claim of systemd is true of a real user manager."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import Absent
from tests.embedded.up.upsupport import until
from tests.hosts.services.usermanager import missing, user_manager

from runyard.clock import RealClock
from runyard.hosts.services.contract import Manager
from runyard.hosts.services.errors import DidNotStay
from runyard.hosts.services.here import manager_here
from runyard.hosts.services.installing import Installed, install, status, uninstall
from runyard.hosts.services.unit import Service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
NASTY = ["100%", "%h", "$HOME", "${HOME}", 'a "b" c', "it's", "back\\slash\\n", ";", "", "é{}*?~"]
# A `#!` line cannot name a Python whose path has a space, and env finds it by PATH.
PROGRAM = f"""#!/bin/sh
'''exec' {shlex.quote(sys.executable)} "$0" "$@"
'''
import json, os, subprocess, sys, time
open("seen", "w").write(json.dumps([sys.argv[1:], os.environ["NASTY"], os.getcwd()]))
if "--fail" in sys.argv:
    sys.exit("no such luck")
shim = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open("shim", "w").write(str(shim.pid))
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def environ(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    with user_manager() as found:
        yield found


@pytest.fixture
def manager(absent: Absent, request: pytest.FixtureRequest) -> Manager:
    lacking = missing()
    if lacking:
        absent("a systemd user manager", lacking)
    environ: dict[str, str] = request.getfixturevalue("environ")
    home = Path(environ["HOME"])
    return manager_here(environ, platform="linux", home=home, uid=os.getuid(), clock=RealClock())


@pytest.fixture
def service(tmp_path: Path) -> Service:
    program = tmp_path / "the program 100% $HOME"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return Service(
        name="real-test",
        description='of a test: 100% "real"',
        version="1",
        argv=(str(program), *NASTY),
        environment={"NASTY": " ".join(NASTY), "HOME": str(tmp_path)},
        directory=str(tmp_path / "data %h $HOME"),
        log=str(tmp_path / "data %h $HOME" / "logs" / "service.log"),
    )


def do_install(service: Service, manager: Manager) -> Installed:
    return asyncio.run(install(service, manager, clock=RealClock(), appears=3.0, stays=0.5))


def with_arguments(service: Service, *arguments: str) -> Service:
    kept = {name: getattr(service, name) for name in service.__struct_fields__}
    return Service(**{**kept, "argv": (service.argv[0], *arguments)})


def test_a_service_lives_through_all_its_changes_in_a_real_systemd(
    manager: Manager, service: Service
) -> None:
    data = Path(service.directory)
    first = do_install(service, manager)
    assert first.change == "installed"
    argv, variable, folder = json.loads((data / "seen").read_text())
    assert (argv, variable, folder) == (NASTY, service.environment["NASTY"], str(data))
    assert do_install(service, manager).pid == first.pid
    shim = int((data / "shim").read_text())

    second = do_install(with_arguments(service, "--other"), manager)
    assert second.change == "replaced" and second.pid != first.pid
    os.kill(shim, 0)  # it has outlived its service

    before = manager.path(service.name).read_bytes()
    with pytest.raises(DidNotStay) as failure:
        do_install(with_arguments(service, "--fail"), manager)
    assert "no such luck" in failure.value.said
    assert manager.path(service.name).read_bytes() == before
    found = asyncio.run(status(service.name, manager))
    assert found.installed and found.pid not in (0, second.pid)
    assert found.since is not None and abs(found.since - RealClock().now()) < 60

    assert asyncio.run(uninstall(service.name, manager)) is True
    until(lambda: not Path(f"/proc/{found.pid}").exists(), what="the end of the program")
    assert asyncio.run(uninstall(service.name, manager)) is False
    os.kill(shim, 0)


def test_a_program_that_is_killed_comes_back(manager: Manager, service: Service) -> None:
    kept = {name: getattr(service, name) for name in service.__struct_fields__}
    done = do_install(Service(**{**kept, "throttle": 1, "name": "killed-test"}), manager)
    os.kill(done.pid, 9)

    def back() -> bool:
        return asyncio.run(manager.observe("killed-test")).pid not in (0, done.pid)

    until(back, within=20, what="another process")
    assert asyncio.run(status("killed-test", manager)).restarts == 1
    assert asyncio.run(uninstall("killed-test", manager)) is True
