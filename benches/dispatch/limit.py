"""Measures the limit of dispatch: a bare aiohttp server that does the least work that any server must do on this rig.

    python -m benches.dispatch.limit FOLDER GITHUB_URL MODE      prints its address; ends at SIGTERM

commit   a webhook is one commit that Postgres syncs, then the answer
jit      a webhook is that commit, then the answer; then one runner registered at the practice GitHub and one Pod's
         label patched at the Kubernetes API, one after the other; then a poll is answered. A poll is one TokenReview,
         then it is held until there is something for it
hold     a poll is held until the end; GET /waiting counts those that wait

No signature, choice, budget or fairness, and nothing about a poll is stored. It gets the same load, from the same
process, as the real server: webhooks at the same rate and as many waiting polls. So server, database, GitHub,
Kubernetes and load generator share the cores in both measurements; the ratio says what dispatch costs above the limit.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import psycopg
import psycopg_pool
import yaml
from aiohttp import ClientSession, TCPConnector, web
from benches.dispatch.dependencies import APP_ID, LABELS, Dependencies

from runyard.clock import RealClock
from runyard.github.app import AppAuth
from runyard.wire import names
from runyard.wire.paths import DISPATCH, GITHUB_WEBHOOK

_TABLE = "CREATE TABLE IF NOT EXISTS bench_limit (id bigserial PRIMARY KEY, job bigint NOT NULL)"
_INSERT = "INSERT INTO bench_limit (job) VALUES (%s)"


class Limit:
    """Answers webhooks with the least possible work."""

    def __init__(self, folder: Path, github_url: str, mode: str) -> None:
        self._mode = mode
        self._waiting = 0
        self._dependencies = msgspec.json.decode(
            (folder / "dependencies.json").read_bytes(), type=Dependencies
        )
        self._conninfo = (folder / "database").read_text()
        self._github = github_url
        config = yaml.safe_load((folder / "kubeconfig").read_text())
        self._kube = str(config["clusters"][0]["cluster"]["server"])
        self._kube_token = str(config["users"][0]["user"]["token"])
        key = (folder / "app.pem").read_text()
        self._auth = AppAuth(app_id=APP_ID, private_key=key, clock=RealClock())
        self._tokens: dict[str, str] = {}
        self._made = 0
        self._polls: asyncio.Queue[asyncio.Future[bytes]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until SIGTERM."""
        pool = psycopg_pool.AsyncConnectionPool(self._conninfo, min_size=8, max_size=8, open=False)
        async with (
            pool,
            ClientSession(connector=TCPConnector(limit=0)) as session,
        ):
            async with pool.connection() as link:
                await link.execute(_TABLE)
            for account in self._dependencies.accounts:
                path = f"{self._github}/app/installations/{account.installation}/access_tokens"
                bearer = {"authorization": f"Bearer {self._auth.jwt()}"}
                async with session.post(path, headers=bearer) as answer:
                    self._tokens[account.name] = (await answer.json())["token"]

            async def handle(request: web.Request) -> web.Response:
                return await self._serve(request, pool, session)

            async def hold(request: web.Request) -> web.Response:
                await request.read()
                if self._mode == "jit":
                    return await self._poll(request, session)
                self._waiting += 1
                await over.wait()
                return web.Response(status=204)

            async def waiting(_: web.Request) -> web.Response:
                return web.json_response(self._waiting)

            over = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
            app = web.Application()
            app.router.add_post(GITHUB_WEBHOOK, handle)
            app.router.add_post(DISPATCH, hold)
            app.router.add_get("/waiting", waiting)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
            await over.wait()
            await runner.cleanup()

    async def _serve(
        self,
        request: web.Request,
        pool: "psycopg_pool.AsyncConnectionPool[psycopg.AsyncConnection[tuple[object, ...]]]",
        session: ClientSession,
    ) -> web.Response:
        event = await request.json()
        account = event["organization"]["login"]
        async with pool.connection() as link:
            await link.execute(_INSERT, [event["workflow_job"]["id"]])
        if self._mode == "jit":
            task = asyncio.create_task(self._deliver(event["workflow_job"]["id"], account, session))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return web.json_response({})

    async def _poll(self, request: web.Request, session: ClientSession) -> web.Response:
        """Hold a poll of a Pod whose token is valid until there is a JIT for it."""
        token = request.headers["authorization"].partition(" ")[2]
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [names.DISPATCH_AUDIENCE]},
        }
        async with session.post(
            f"{self._kube}/apis/authentication.k8s.io/v1/tokenreviews",
            headers={"authorization": f"Bearer {self._kube_token}"},
            json=review,
        ) as answer:
            reviewed = await answer.json()
        if not reviewed["status"].get("authenticated"):
            return web.Response(status=401)
        mine: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._polls.put_nowait(mine)
        self._waiting += 1
        return web.Response(body=await mine, content_type="application/json")

    async def _deliver(self, job: int, account: str, session: ClientSession) -> None:
        """Register a runner, patch its Pod, and answer the poll that has waited longest."""
        self._made += 1
        name = f"limit-{os.getpid()}-{self._made}"
        runner = {"name": name, "runner_group_id": 1, "labels": LABELS, "work_folder": "_work"}
        async with session.post(
            f"{self._github}/orgs/{account}/actions/runners/generate-jitconfig",
            headers={"authorization": f"Bearer {self._tokens[account]}"},
            json=runner,
        ) as answer:
            minted = await answer.json()
            assert answer.status == 201, minted
        pod = self._dependencies.runners[-1 - self._made % len(self._dependencies.runners)].name
        path = f"/api/v1/namespaces/{names.RUNNERS_NAMESPACE}/pods/{pod}"
        patch = msgspec.json.encode({"metadata": {"labels": {"bench": name}}})
        async with session.patch(
            self._kube + path,
            headers={
                "authorization": f"Bearer {self._kube_token}",
                "content-type": "application/merge-patch+json",
            },
            data=patch,
        ) as answer:
            assert answer.status == 200, await answer.read()
        body = {"encoded_jit_config": minted["encoded_jit_config"], "workflow_job_id": job}
        while True:
            poll = await self._polls.get()
            if not poll.done():  # its connection was not closed meanwhile
                poll.set_result(msgspec.json.encode(body))
                return


if __name__ == "__main__":
    asyncio.run(Limit(Path(sys.argv[1]), sys.argv[2], sys.argv[3]).run())
