"""Measures the limit of dispatch: a bare aiohttp server that does the least work that any server must do on this rig.

    python -m benches.dispatch.limit FOLDER GITHUB_URL MODE      prints its address; ends at SIGTERM

commit   a webhook is one commit that Postgres syncs, then the answer
jit      a webhook is that commit, one runner registered at the practice GitHub and one Pod's label patched at the
         Kubernetes API, one after the other, then the answer
hold     a poll is held until the end; GET /waiting counts those that wait

No signature, queue, choice, budget or fairness. It gets the same load, from the same process, as the real server; the
ratio says what dispatch costs above the limit.
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
from benches.dispatch.dependencies import APP_ID, IMAGE, LABELS, Dependencies

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
        if self._mode == "commit":
            return web.json_response({})
        self._made += 1
        name = f"limit-{os.getpid()}-{self._made}"
        runner = {"name": name, "runner_group_id": 1, "labels": LABELS, "work_folder": "_work"}
        async with session.post(
            f"{self._github}/orgs/{account}/actions/runners/generate-jitconfig",
            headers={"authorization": f"Bearer {self._tokens[account]}"},
            json=runner,
        ) as answer:
            minted = await answer.json()
            if answer.status != 201:
                return web.json_response(minted, status=502)
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
            await answer.read()
            if answer.status != 200:
                return web.Response(status=502, text=f"{IMAGE}: {answer.status}")
        return web.json_response({"encoded_jit_config": minted["encoded_jit_config"]})


if __name__ == "__main__":
    asyncio.run(Limit(Path(sys.argv[1]), sys.argv[2], sys.argv[3]).run())
