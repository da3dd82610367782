"""No request that the OpenAPI document allows makes the server fail, and each gets a documented response.

The document is the one that the running server serves at /openapi.json, dashboard and REST included; the requests come
from schemathesis, over real HTTP, once without and once with valid credentials. The seed is fixed, and printed with the
requests.
"""

import asyncio
import collections
import contextlib
import hashlib
import hmac
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import hypothesis
import pytest
from tests.dispatch.dispatchharness import SECRET, Harness
from tests.tiers import pick

from runyard.clock import RealClock
from runyard.components import server
from runyard.components.probing import NotReady
from runyard.components.server import ServerSocket
from runyard.db.pooled import open_pool
from runyard.embedded.github.identity import KeyPair
from runyard.http.sockets import bind
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.web.settings import Settings as Looking
from runyard.wire.paths import DESIRED_REPLICAS, GITHUB_WEBHOOK, POD_STOPPED

SEED = 20_261
EXAMPLES = pick(fast=4, ci=4, long=12)  # for each operation
LOOK_TOKEN = "a-token-for-whoever-looks-at-the-fleet"
WITHIN = 60.0
ENDLESS = "text/event-stream"  # such a response never ends

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # Of the tool's own libraries; ours are held to the strict rule everywhere else.
    pytest.mark.filterwarnings("default"),
]


class Live:
    """A server in a thread of its own, and valid credentials for it."""

    def __init__(self, url: str, keys: KeyPair) -> None:
        self.url = ""
        self.runner = self.operator = ""
        self._database, self._keys = url, keys
        self._ready = threading.Event()
        self._ending: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(WITHIN), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None and self._ending is not None
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(WITHIN)

    async def _live(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        clock, rng = RealClock(), random.Random(1)
        harness = Harness(
            self._database, self._keys, clock=clock, poll_wait_default=0.0, poll_wait_max=0.05
        )
        await harness.pool()
        self.runner = (await harness.pod()).token
        self.operator = await harness.controller_token()
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(harness.close)
            database = await stack.enter_async_context(
                open_pool(self._database, clock=clock, rng=rng)
            )
            socket = ServerSocket(
                sock=bind("127.0.0.1", 0),
                # As for a request from another machine: with a token.
                access=Looking(listen="192.0.2.1", token=LOOK_TOKEN),
            )
            await server.serve(
                harness.deps(database=database, rng=rng, log=get_logger("fuzz"), meter=Meter()),
                (socket,),
                prepare=_at_once,
                ready=self._serves,
                ending=self._ending,
            )

    def _serves(self, urls: tuple[str, ...]) -> None:
        self.url = urls[0]
        self._ready.set()

    def sign(self, prepared: Any) -> None:
        """Add valid credentials to a request."""
        path = prepared.path_url.partition("?")[0]
        if path == GITHUB_WEBHOOK:
            body = prepared.body or b""
            raw = body if isinstance(body, bytes) else body.encode()
            seal = hmac.new(SECRET.encode(), raw, hashlib.sha256).hexdigest()
            prepared.headers["x-hub-signature-256"] = f"sha256={seal}"
            return
        token = LOOK_TOKEN
        if path.startswith("/api/internal/"):
            token = self.operator if path in (POD_STOPPED, DESIRED_REPLICAS) else self.runner
        prepared.headers["authorization"] = f"Bearer {token}"


async def _at_once(_: NotReady) -> None:
    """The tables are there already."""


def operations(schema: Any) -> Iterator[Any]:
    """All operations except endless streams."""
    for found in schema.get_all_operations():
        operation = found.ok()
        responses = operation.definition.raw["responses"].values()
        if not any(ENDLESS in each.get("content", {}) for each in responses):
            yield operation


def fuzz(operation: Any, ask: Callable[[Any], None]) -> str:
    """Fuzz all operations; returns the failures as text, or an empty text."""

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(operation.as_strategy())
    def run(case: Any) -> None:
        ask(case)

    try:
        run()
    except Exception as found:  # noqa: BLE001 whatever it is, the other operations are asked too
        return f"{operation.label}: {found}"
    except BaseExceptionGroup as group:
        return f"{operation.label}: {group.exceptions}"
    return ""


@pytest.mark.parametrize("who", ["a stranger", "somebody who may"])
def test_every_request_of_the_openapi_document_gets_a_documented_answer(
    database_url: str, app_keys: KeyPair, who: str
) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="the tool is in the dev lock: make")
    requests = pytest.importorskip("requests")
    promised = pytest.importorskip("schemathesis.specs.openapi.checks")
    checks = [
        schemathesis.checks.not_a_server_error,
        promised.status_code_conformance,
        promised.content_type_conformance,
        promised.response_schema_conformance,
    ]
    asked: collections.Counter[str] = collections.Counter()
    with Live(database_url, app_keys) as live, requests.Session() as session:
        session.trust_env = False

        def ask(case: Any) -> None:
            sent = requests.Request(**case.as_transport_kwargs(base_url=live.url))
            prepared = session.prepare_request(sent)
            if who == "a stranger":
                prepared.headers.pop("authorization", None)
                prepared.headers.pop("x-hub-signature-256", None)
            else:
                live.sign(prepared)
            answer = session.send(prepared, timeout=WITHIN, allow_redirects=False)
            asked[f"{case.operation.label} {answer.status_code}"] += 1
            case.validate_response(answer, checks=checks)

        look = {"authorization": f"Bearer {LOOK_TOKEN}"}
        document = session.get(f"{live.url}/openapi.json", headers=look, timeout=WITHIN).json()
        schema = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=live.url)
        found = [fuzz(operation, ask) for operation in operations(schema)]
    sys.stdout.write(f"seed {SEED}, as {who}: {sum(asked.values())} requests\n")
    sys.stdout.writelines(f"{count:6} {line}\n" for line, count in sorted(asked.items()))
    assert sum(asked.values()) > EXAMPLES
    assert not any(found), "\n\n".join(filter(None, found))
