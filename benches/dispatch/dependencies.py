"""Runs the server's dependencies in one process: the embedded Kubernetes API and the practice GitHub, over HTTP.

    python -m benches.dispatch.dependencies FOLDER RUNNERS TENANTS    prints two addresses; ends when its input closes

It creates a pool with RUNNERS Pods, each with its ServiceAccount and a bound token, and TENANTS accounts at GitHub,
each with its own installation, because GitHub's limits are per installation. Files for the server and the load
generator are written to FOLDER.
"""

import asyncio
import gc
import random
import sys
from pathlib import Path
from typing import Any

import msgspec

from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.identity import generate_key_pair
from runyard.embedded.kube.access.login import authenticator
from runyard.embedded.kube.core import KubeCore, Security
from runyard.embedded.kube.kubeconfig import render
from runyard.embedded.kube.settings import Settings
from runyard.embedded.up.accounts import grant
from runyard.http.loopback import Loopback
from runyard.http.server import listen
from runyard.kube.client import Kube
from runyard.kube.kinds import NODES, PODS, RUNNER_POOLS, SERVICE_ACCOUNTS
from runyard.wire import names, rights

APP_ID = 4711
SECRET = "the-secret-of-this-bench"
POOL = "mac"
LABELS = ("self-hosted", "macOS", "shape-mac")
IMAGE = "vm:1"
_ADMIN = "the-administrator-of-this-bench"
_DAY = 86400
_SPACE = names.RUNNERS_NAMESPACE


class Account(msgspec.Struct, frozen=True):
    """A GitHub account with jobs."""

    name: str
    installation: int


class Runner(msgspec.Struct, frozen=True):
    """A runner Pod and its token."""

    name: str
    token: str


class Dependencies(msgspec.Struct, frozen=True):
    """What the server and the load generator need to know."""

    accounts: tuple[Account, ...]
    runners: tuple[Runner, ...]


async def main(folder: Path, runners: int, tenants: int) -> None:
    clock, keys = RealClock(), generate_key_pair()
    # These Pods are neither scheduled nor run: only their tokens are used, for polls.
    core = KubeCore(
        clock=clock,
        rng=random.Random(1),
        settings=Settings(schedule=False),
        security=Security(rbac=True),
    )
    core.guard(authenticator((_ADMIN,), core.tokens))
    github = GithubCore(
        clock=clock,
        rng=random.Random(2),
        app=PracticeApp(app_id=APP_ID, public_key=keys.public_pem, webhook_secret=SECRET),
    )
    admin = Kube(Loopback(core.handle), token=lambda: _ADMIN)
    server_token = await _create_objects(admin)
    made = Dependencies(
        accounts=tuple(_account(github, number) for number in range(tenants)),
        runners=tuple([await _runner(admin, number) for number in range(runners)]),
    )
    # A collection of the objects made above would stop both APIs for 0.2 s, and the jobs of that time with them.
    gc.collect()
    gc.freeze()
    kube, hub = await listen(core.handle), await listen(github.handle)
    files = {
        "kubeconfig": render(kube.url, token=server_token),
        "app.pem": keys.private_pem,
        "secret": SECRET,
        "seal": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "dependencies.json": msgspec.json.encode(made).decode(),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    beating = asyncio.create_task(github.run())
    print(kube.url, hub.url, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    beating.cancel()
    await kube.close()
    await hub.close()
    assert not core.failures and not github.internal_errors


async def _create_objects(admin: Kube) -> str:
    """Create the server's account with the shipped roles, and the pool; returns the server's token."""
    await grant(admin, (rights.SERVER,))
    space, account = names.CONTROLLER_NAMESPACE, rights.SERVER_ACCOUNT
    await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": account}}, namespace=space)
    await admin.create(NODES, {"metadata": {"name": "host"}})
    spec = {
        "image": IMAGE,
        "fleetSelector": "hosts",
        "dispatchLabel": LABELS[-1],
        "runnerLabels": list(LABELS[:-1]),
        "podCPUMilli": 1000,
        "podMemoryMB": 1024,
    }
    pool: dict[str, Any] = {"metadata": {"name": POOL}, "spec": spec}
    await admin.create(RUNNER_POOLS, pool, namespace=_SPACE)
    return await admin.create_token(account, namespace=space, audience="", seconds=_DAY)


def _account(github: GithubCore, number: int) -> Account:
    name = f"tenant-{number}"
    installation = github.install(name)
    github.add_repo(f"{name}/app")
    return Account(name, installation)


async def _runner(admin: Kube, number: int) -> Runner:
    name = f"{POOL}-runner-{number:08x}"
    member = {names.RUNNER_POOL: POOL}
    await admin.create(
        SERVICE_ACCOUNTS, {"metadata": {"name": name, "labels": member}}, namespace=_SPACE
    )
    pod = {
        "metadata": {"name": name, "labels": {**member, names.RUNNER: "true"}},
        "spec": {
            "serviceAccountName": name,
            "nodeName": "host",
            "containers": [{"name": "runner", "image": IMAGE}],
        },
    }
    made = await admin.create(PODS, pod, namespace=_SPACE)
    bound = {"pod_name": name, "pod_uid": made["metadata"]["uid"]}
    token = await admin.create_token(
        name, namespace=_SPACE, audience=names.DISPATCH_AUDIENCE, seconds=_DAY, **bound
    )
    return Runner(name, token)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
