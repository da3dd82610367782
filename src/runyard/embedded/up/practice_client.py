"""Calls the practice routes of the practice GitHub: pushes jobs and reads what happened."""

from typing import TypeVar

import msgspec

from runyard.embedded.github.views import JobView, RunnerView
from runyard.http.messages import Pairs, Request, Response, Stream, Transport
from runyard.http.problems import Problem

T = TypeVar("T")
TIMEOUT = 10.0


class Refused(Exception):
    """The practice GitHub refused the request, with this status."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


class _Jobs(msgspec.Struct):
    items: tuple[JobView, ...]


class _Runners(msgspec.Struct):
    items: tuple[RunnerView, ...]


class PracticeClient:
    """Sends requests with the practice token."""

    def __init__(self, transport: Transport, *, token: str) -> None:
        self._transport = transport
        self._headers = (("authorization", f"Bearer {token}"), ("user-agent", "runyard"))

    async def install(self, account: str, repo: str) -> None:
        """Installs the App and gives it access to a repository; a repeated call has no effect."""
        await self._ask("POST", "/practice/accounts", {"account": account})
        await self._ask("POST", "/practice/repos", {"repo": repo})

    async def queue_job(self, repo: str, *, labels: tuple[str, ...], script: str, name: str) -> int:
        """Queues a job; returns its id."""
        body = {"repo": repo, "labels": labels, "script": script, "name": name}
        answer = await self._ask("POST", "/practice/jobs", body)
        return _decoded(answer, JobView).id

    async def job(self, number: int) -> JobView:
        """One job as it is now."""
        return _decoded(await self._ask("GET", f"/practice/jobs/{number}"), JobView)

    async def jobs(self) -> tuple[JobView, ...]:
        """The newest jobs."""
        return _decoded(await self._ask("GET", "/practice/jobs"), _Jobs).items

    async def runners(self) -> tuple[RunnerView, ...]:
        """Every registration."""
        return _decoded(await self._ask("GET", "/practice/runners"), _Runners).items

    async def log(self, job: int) -> str:
        """A job's whole log."""
        whole = bytearray()
        while True:
            page = await self._ask(
                "GET", f"/practice/jobs/{job}/log", query=(("offset", str(len(whole))),)
            )
            whole += page.body
            if not page.body or len(whole) >= int(page.header("x-runyard-log-size", "0")):
                return whole.decode(errors="replace")

    async def _ask(
        self, method: str, path: str, body: object = None, *, query: Pairs = ()
    ) -> Response:
        sent = b"" if body is None else msgspec.json.encode(body)
        headers = (*self._headers, ("content-type", "application/json"))
        request = Request(method=method, path=path, query=query, headers=headers, body=sent)
        answer = await self._transport.send(request, timeout=TIMEOUT)
        if isinstance(answer, Stream):
            await answer.aclose()
            raise Refused(f"{method} {path}: unexpected stream", status=answer.status)
        if answer.status >= 300:
            text = f"{method} {path}: {answer.status} {_reason(answer)}".rstrip()
            raise Refused(text, status=answer.status)
        return answer


def _reason(answer: Response) -> str:
    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        return ""
    return ": ".join(component for component in (problem.error, problem.reason) if component)


def _decoded(answer: Response, type_: type[T]) -> T:
    return msgspec.json.decode(answer.body, type=type_)
