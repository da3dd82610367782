"""Every call to a GitHub Enterprise Server is sent below its path, also the one for the token."""

import asyncio
import random
from typing import Any

import msgspec
from tests.github.conftest import APP_ID

from runyard.clock import RealClock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.identity import KeyPair
from runyard.github.app import AppAuth
from runyard.github.budget import Budget
from runyard.github.client import GitHub
from runyard.github.scope import organisation, repository
from runyard.github.setup import convert_manifest
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.http.server import listen

BASE = "/api/v3"


class Enterprise:
    """A practice GitHub that is served under a path, over a real socket."""

    def __init__(self, core: GithubCore) -> None:
        self._core = core
        self.paths: list[str] = []

    async def handle(self, request: Request) -> Response:
        self.paths.append(request.path)
        if not request.path.startswith(f"{BASE}/"):
            return Response(status=404)
        inner = msgspec.structs.replace(request, path=request.path.removeprefix(BASE))
        return await self._core.handle(inner)


def test_every_call_goes_under_the_path(app_keys: KeyPair) -> None:
    async def scenario() -> None:
        clock = RealClock()
        core = GithubCore(
            clock=clock,
            rng=random.Random(1),
            app=PracticeApp(app_id=APP_ID, public_key=app_keys.public_pem, webhook_secret="hush"),
        )
        installation = core.install("acme")
        core.add_repo("acme/app")
        enterprise = Enterprise(core)
        server = await listen(enterprise.handle)
        transport = HttpTransport(f"{server.url}{BASE}/")
        try:
            await everything(core, transport, clock, app_keys, installation)
        finally:
            await transport.close()
            await server.close()
        assert all(path.startswith(f"{BASE}/") for path in enterprise.paths)
        assert any("access_tokens" in path for path in enterprise.paths)
        assert core.internal_errors == 0

    asyncio.run(scenario())


async def everything(
    core: GithubCore, transport: Any, clock: Any, keys: KeyPair, installation: int
) -> None:
    """Each call that there is, once, with success."""
    github = GitHub(
        transport,
        app=AppAuth(app_id=APP_ID, private_key=keys.private_pem, clock=clock),
        clock=clock,
        budget=Budget(clock),
    )
    org = organisation("acme", installation_id=installation)
    repo = repository("acme/app", installation_id=installation)
    called = set()

    async def call(what: str, *args: Any, **more: Any) -> Any:
        called.add(what)
        return await getattr(github, what)(*args, **more)

    job = core.queue_job("acme/app", ("macos",))
    run = core.jobs()[job].run_id
    await core.settle()
    made = await call("generate_jit", org, name="mac-1", labels=("other",))
    assert (await call("find_runner", org, "mac-1")).id == made.runner_id
    assert len(await call("find_runners", org, ("mac-1",), purpose="read")) == 1
    assert len(await call("list_runners", org)) == 1
    assert await call("delete_runner", org, made.runner_id) == "deleted"
    assert (await call("get_job", repo, job)).id == job
    assert len(await call("list_queued_jobs", repo)) == len(await call("list_open_jobs", repo)) == 1
    (attempt,) = (await call("deliveries")).items
    assert (await call("delivery", attempt.id)).guid == attempt.guid
    assert await call("redeliver", attempt.id)
    assert (await call("app")).id == APP_ID
    assert len(await call("installations")) == 1
    assert (await call("installation", installation)).id == installation
    assert len(await call("repositories", org)) == 1
    assert len(await call("runner_groups", org)) == 1
    assert (await call("rate_limit", org)).limit
    assert await call("newest_runner", org)
    assert (await call("get_run", repo, run)).event == "push"
    assert len(await call("run_jobs", repo, run)) == 1
    assert await call("cancel_run", repo, run)
    await call("rerun_job", repo, job)
    assert (await convert_manifest(transport, core.submit_manifest({"name": "x"}))).pem
    public = {name for name in dir(GitHub) if not name.startswith("_")}
    assert public - called == {"last_answer", "only"}
