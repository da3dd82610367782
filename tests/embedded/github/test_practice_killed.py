"""`kill -9` on the practice GitHub while a job runs loses no acknowledged change."""

import asyncio
import hashlib
import hmac
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from tests.embedded.github.practicelive import start_program

from runyard.embedded.github.identity import KeyPair
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response
from runyard.http.server import listen

PROCESS = Path(__file__).with_name("practice_process.py")


class Receiver:
    """Receives webhooks; can be set to refuse them."""

    def __init__(self) -> None:
        self.status = 503
        self.received: list[tuple[str, str, int]] = []
        self.changed = asyncio.Event()

    async def handle(self, request: Request) -> Response:
        digest = hmac.new(b"hush", request.body, hashlib.sha256).hexdigest()
        assert request.header("x-hub-signature-256") == f"sha256={digest}"
        assert request.path == "/webhooks/github"
        body = msgspec.json.decode(request.body)
        job = body["workflow_job"]["id"]
        self.received.append((request.header("x-github-delivery"), body["action"], job))
        self.changed.set()
        return Response(status=self.status)


class Caller:
    """A client that sends the requests of users and of the fleet's server."""

    def __init__(self, transport: HttpTransport, keys: KeyPair) -> None:
        self._transport = transport
        self._keys = keys

    async def ask(
        self, method: str, path: str, body: Any = None, *, bearer: str = "practice"
    ) -> Any:
        headers = (
            ("authorization", f"Bearer {bearer}"),
            ("content-type", "application/json"),
            ("user-agent", "test"),
        )
        sent = b"" if body is None else msgspec.json.encode(body)
        request = Request(method=method, path=path, headers=headers, body=sent)
        answer = await self._transport.send(request, timeout=30)
        assert isinstance(answer, Response) and answer.status < 300, answer
        if answer.header("content-type").startswith("text/"):
            return answer.body.decode()
        return msgspec.json.decode(answer.body)

    async def token(self, installation: int) -> str:
        now = int(time.time())
        claims = {"iat": now - 60, "exp": now + 540, "iss": "1"}
        credential = jwt.encode(claims, self._keys.private_pem, algorithm="RS256")
        path = f"/app/installations/{installation}/access_tokens"
        return str((await self.ask("POST", path, bearer=credential))["token"])


async def start(sock: socket.socket, folder: Path, receiver: str) -> asyncio.subprocess.Process:
    arguments = (str(PROCESS), str(sock.fileno()), str(folder), receiver)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        pass_fds=(sock.fileno(),),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def story(keys: KeyPair, folder: Path) -> None:
    (folder / "public.pem").write_text(keys.public_pem)
    begun, go = folder / "begun", folder / "go"
    os.mkfifo(begun)
    os.mkfifo(go)
    receiver = Receiver()
    hooks = await listen(receiver.handle)
    sock = socket.create_server(("127.0.0.1", 0))  # connections queue while no process serves
    transport = HttpTransport(f"http://127.0.0.1:{sock.getsockname()[1]}")
    github = await start(sock, folder, hooks.url)
    try:
        caller = Caller(transport, keys)
        account = await caller.ask("POST", "/practice/accounts", {"account": "acme"})
        await caller.ask("POST", "/practice/repos", {"repo": "acme/app"})
        token = await caller.token(account["installation_id"])
        mint = {"name": "a", "runner_group_id": 1, "labels": ["mac"], "work_folder": "_work"}
        path = "/orgs/acme/actions/runners/generate-jitconfig"
        minted = await caller.ask("POST", path, mint, bearer=token)
        script = 'echo one\necho x > "$BEGUN"\nread word < "$GO"\necho "$word"\n'
        job = {
            "repo": "acme/app",
            "labels": ["mac"],
            "script": script,
            "env": {"BEGUN": str(begun), "GO": str(go)},
        }
        number = (await caller.ask("POST", "/practice/jobs", job))["id"]
        program = await start_program(folder, "--jitconfig", minted["encoded_jit_config"])
        await asyncio.to_thread(begun.read_text)

        github.kill()
        await github.wait()
        await asyncio.to_thread(go.write_text, "two\n")  # the job ends while there is no GitHub
        receiver.status = 202
        github = await start(sock, folder, hooks.url)

        assert await program.ended() == 0, program.output
        shown = await caller.ask("GET", f"/practice/jobs/{number}")
        history = [entry["what"] for entry in shown["history"]]
        assert history == ["queued", "in_progress", "completed:success"]
        assert await caller.ask("GET", f"/practice/jobs/{number}/log") == "one\ntwo\n"
        # The token of the hour before, and the registrations, are still known.
        runners = await caller.ask("GET", "/orgs/acme/actions/runners", bearer=token)
        assert runners["total_count"] == 0
        async with asyncio.timeout(60):
            while "completed" not in [action for _, action, _ in receiver.received]:
                receiver.changed.clear()
                await receiver.changed.wait()
        deliveries = {guid: action for guid, action, job in receiver.received if job == number}
        assert sorted(deliveries.values()) == ["completed", "in_progress", "queued"]
    finally:
        if github.returncode is None:
            github.kill()
            await github.wait()
        await transport.close()
        await hooks.close()
        sock.close()


@pytest.mark.slow
def test_a_killed_github_restores_its_jobs_logs_tokens_and_webhooks(
    practice_keys: KeyPair, tmp_path: Path
) -> None:
    asyncio.run(story(practice_keys, tmp_path))
