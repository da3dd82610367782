"""Runs each script of this directory on the embedded API twice and on a real one, unchanged.

A script is an `async def` that takes `api`. The long tier and `make conformance` run every script on every server. The
verdict runs all scripts on the embedded API in this process, and a rotating third of them over HTTP and on the real
one. Where no real control plane can be started its cases are reported as not run. `@pytest.mark.since(1, 31)`, or a
line in `ages`, names the first version of Kubernetes that can pass.
"""

import asyncio
import hashlib
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import controlplane
import pytest
from tests.conformance.kube import ages, backends, usage
from tests.conftest import BACKEND, Absent
from tests.tiers import sample

# A real control plane takes half a minute to start and seconds for each script, so its cases are marked slow.
PARAMS = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "real" else [])
    for name in backends.NAMES
]
SAMPLED = ("http", "real")
SHARE = 3
WHOLE = 100  # fewer cases than this were chosen by name: they all run


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the scripts that are not in this run's sample, on the servers where a script takes long."""
    left_out: set[str] = set()
    for backend in SAMPLED:
        cases = sorted(item.nodeid for item in items if _backend(item) == backend)
        if len(cases) > WHOLE:
            left_out |= {*cases} - {*sample(cases, of=SHARE)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


def _backend(item: pytest.Item) -> str | None:
    chosen = getattr(item, "callspec", None)
    found: str | None = chosen.params.get("api") if chosen is not None else None
    return found


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[controlplane.ControlPlane | None]:
    """The real control plane of this test process; None where there are no binaries."""
    assets = controlplane.find_assets(os.environ)
    if assets is None:
        yield None
        return
    folder = tmp_path_factory.mktemp("control-plane")
    complete = assets.complete
    with controlplane.ControlPlane(
        assets, folder, controllers=complete, scheduler=complete
    ) as started:
        yield started


@pytest.fixture
def real_plane(
    plane: controlplane.ControlPlane | None, absent: Absent
) -> controlplane.ControlPlane:
    """The real control plane; the test is not run without one."""
    if plane is None:
        absent("a real kube-apiserver", controlplane.HOW)
    return plane


@pytest.fixture
def bare_plane(tmp_path: Path, absent: Absent) -> Iterator[controlplane.ControlPlane]:
    """A modern server without controllers, so a Node without heartbeats is not marked as lost."""
    assets = controlplane.find_assets(os.environ)
    if assets is None:
        absent("a real kube-apiserver", controlplane.HOW)
    folder = tmp_path / "plane"
    with controlplane.ControlPlane(assets, folder, controllers=False, scheduler=False) as started:
        if not started.modern:
            pytest.skip(f"output is compared with a modern server's, not {started.git_version}")
        yield started


@pytest.fixture(params=PARAMS)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> backends.Open:
    """How to open the server of this case; the script itself is given the open `Api`."""
    backend: str = request.param
    request.node.user_properties.append((BACKEND, backend))
    if backend == "loopback":
        return backends.loopback
    if backend == "http":
        return backends.http(tmp_path_factory.mktemp("https"))
    plane = request.getfixturevalue("real_plane")
    request.node.user_properties.append((BACKEND + "-version", plane.git_version))
    _check_age(request, plane)
    return backends.real(plane)


def _check_age(request: pytest.FixtureRequest, plane: controlplane.ControlPlane) -> None:
    needed = [mark.args for mark in request.node.iter_markers("since")]
    needed.append(ages.SINCE.get(request.node.originalname, (1, 0)))
    if plane.version[:2] < max(needed):
        wanted = ".".join(str(number) for number in max(needed))
        pytest.skip(f"needs Kubernetes {wanted}, this is {plane.git_version}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a script on a new event loop, with its server open meanwhile."""
    script = pyfuncitem.obj
    if not inspect.iscoroutinefunction(script):
        return None
    wanted = inspect.signature(script).parameters
    given = {name: pyfuncitem.funcargs[name] for name in wanted}
    opened: backends.Open = given["api"]
    space = "t-" + hashlib.sha256(pyfuncitem.nodeid.encode()).hexdigest()[:10]

    async def main() -> None:
        async with opened(space) as api:
            await script(**given | {"api": api})

    asyncio.run(main())
    return True


def pytest_sessionfinish() -> None:
    usage.leave(backends.ASKED)
