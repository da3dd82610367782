"""A result bundle through real processes: `runyard server` takes it in, `runyard processor` reads it, REST tells it."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from tests.cli.server_harness import BEARER, SOON, Yard, play
from tests.xcresult.processor.processor_harness import zipped
from tests.xcresult.writer.plan import Plan

from runyard.embedded.github.identity import KeyPair
from runyard.http.client import HttpTransport
from runyard.http.messages import Request, Response, Stream

RUN = "11111111-2222-4333-8444-555555555555"
PLAN = Plan(cases=12, failures=2, retries=2, attachments=4, payloads=2, coverage=2, arguments=1)


async def send(url: str, method: str, body: bytes | None = None) -> Response:
    """One request to that address."""
    parts = urlsplit(url)
    way = HttpTransport(f"{parts.scheme}://{parts.netloc}")
    request = Request(
        method=method,
        path=parts.path,
        query=tuple(parse_qsl(parts.query)),
        headers=(("content-type", "application/json"), ("authorization", BEARER)),
        body=body or b"",
    )
    try:
        got = await way.send(request, timeout=SOON)
        if isinstance(got, Stream):
            whole = b"".join([piece async for piece in got])
            await got.aclose()
            return Response(status=got.status, headers=got.headers, body=whole)
        return got
    finally:
        await way.close()


async def asked(url: str, method: str = "GET", body: Any = None) -> Any:
    answer = await send(url, method, None if body is None else msgspec.json.encode(body))
    assert answer.status in (200, 202), (url, answer.body)
    return answer.json()


@pytest.mark.slow
def test_a_bundle_that_is_uploaded_can_be_read_by_everybody_who_may(
    tmp_path: Path, database_url: str, app_keys: KeyPair
) -> None:
    bundle = zipped(tmp_path, PLAN)
    blobs = tmp_path / "blobs"

    async def scenario(yard: Yard) -> None:
        server = await yard.start("server", blobs=blobs)
        runs = f"{await server.serving()}/api/v1/test-runs"
        processor = await yard.run(
            *("processor", "--json", "--database-url-file", str(tmp_path / "db.url")),
            *("--blobs", str(blobs), "--scratch", str(tmp_path / "scratch")),
            *("--listen", "127.0.0.1:0", "--poll", "0.1", "--reserve", "1MiB"),
            name="processor",
        )
        said = {"id": RUN, "account": "Acme", "project": "App", "git_commit_sha": "abc"}
        made = await asked(runs, "POST", said)
        assert (await send(made["upload"]["url"], "PUT", bundle)).json() == {"size": len(bundle)}
        assert (await asked(f"{runs}/{RUN}/complete", "POST", {}))["state"] == "queued"
        async with asyncio.timeout(SOON):
            while (run := (await asked(f"{runs}/{RUN}"))["run"])["state"] != "processed":
                assert run["state"] != "failed_processing", processor.said()
                await asyncio.sleep(0.1)
        assert (run["status"], run["cases"], run["flaky"]) == ("failure", 12, 2)
        failed = (await asked(f"{runs}/{RUN}/cases?status=failure"))["items"]
        assert len(failed) == run["failed"] >= 2 and failed[0]["failures"][0]["message"]
        assert (await asked(f"{runs}/{RUN}/coverage"))["executable_lines"] > 0
        (file, *_) = (await asked(f"{runs}/{RUN}/coverage/files"))["items"]
        target = f"target={file['target']}&path={file['path']}"
        assert (await asked(f"{runs}/{RUN}/coverage/lines?{target}"))["lines"]
        attachments = (await asked(f"{runs}/{RUN}/attachments"))["items"]
        assert len(attachments) == 4
        for each in attachments:
            got = await send(each["url"], "GET")
            assert (got.status, len(got.body)) == (200, each["size"])
            assert got.header("content-disposition").startswith("attachment")
        detail = await asked(f"{runs}/{RUN}/cases/{attachments[0]['case']}")
        assert detail["executions"][0]["attachments"]
        flaky = (await asked(runs.replace("test-runs", "flaky-tests")))["items"]
        assert {each["figures"]["flaky"] for each in flaky} == {1} and len(flaky) == 2
        assert await server.end() == 0 and await processor.end() == 0
        for process in (server, processor):
            assert "Traceback" not in process.said() and "signature=" not in process.said()

    play(scenario, tmp_path, database_url, app_keys)
