"""The session in docs/embedded-kubernetes.md is what kubectl prints."""

import asyncio
import json

import pytest
from tests.embedded.kube_http.kubectlsupport import KUBECTL, POOL, Play, Served
from tests.transcripts import check, transcripts

PAGE = "docs/embedded-kubernetes.md"


async def printed(served: Served, line: str) -> str:
    """Output and errors of a command in a shell, as a terminal shows them."""
    process = await asyncio.create_subprocess_shell(
        line,
        cwd=served.folder,
        env={
            "HOME": str(served.folder),
            "KUBECONFIG": "config",
            "PATH": f"{KUBECTL.parent}:/usr/bin:/bin",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.slow
def test_the_session_on_the_page_is_what_kubectl_prints(play: Play) -> None:
    async def scenario(served: Served) -> None:
        (session,) = transcripts(PAGE)
        (served.folder / "pool.yaml").write_text(json.dumps(POOL))
        check(session, [await printed(served, step.command) for step in session.steps])

    play(scenario)
