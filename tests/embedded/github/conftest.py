"""A practice GitHub, a REST client for it, and a clock that the test advances."""

import asyncio
import functools
import random
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.store import RecordStore
from runyard.http.messages import Request, Response

APP_ID = 77
PRACTICE_TOKEN = "practice-secret"


@functools.cache
def _loaded(pem: str) -> Any:
    """Reading a key costs far more than signing with it."""
    return load_pem_private_key(pem.encode(), password=None)


class ManualClock:
    """A clock that moves only when the test advances it. Monotonic time starts at zero at each boot."""

    def __init__(self, *, at: float = 1_760_000_000.0, boot: float = 0.0) -> None:
        self.t = at
        self.boot = boot

    def now(self) -> float:
        return self.t

    def monotonic(self) -> float:
        return self.t - self.boot

    async def sleep(self, seconds: float) -> None:
        self.t += seconds

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(None)


class Practice:
    """The core with one organisation (acme: app, lib) and one person (mona: dots)."""

    def __init__(
        self,
        keys: KeyPair,
        *,
        seed: int = 3,
        store: RecordStore | None = None,
        settings: PracticeSettings | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.keys = keys
        self.clock = clock or ManualClock()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.delivered: list[Delivery] = []
        self.core = GithubCore(
            clock=self.clock,
            rng=random.Random(seed),
            app=PracticeApp(
                app_id=APP_ID,
                public_key=keys.public_pem,
                webhook_secret="hush",
                practice_token=PRACTICE_TOKEN,
            ),
            deliver=self._deliver,
            on_event=lambda what, detail: self.events.append((what, detail)),
            settings=settings or PracticeSettings(runners_per_scope=50),
            store=store,
        )
        if self.core._state.installations:  # it was restored from its store
            self.token = ""
            return
        self.acme = self.core.install("acme")
        self.mona = self.core.install("mona", kind="User")
        for repo in ("acme/app", "acme/lib", "mona/dots"):
            self.core.add_repo(repo)
        self.app_jwt = self.jwt()
        self.token = self.token_of(self.acme)

    async def _deliver(self, delivery: Delivery) -> int:
        self.delivered.append(delivery)
        return 200

    def jwt(self, **changes: Any) -> str:
        now = int(self.clock.t)
        claims = {"iat": now - 60, "exp": now + 540, "iss": str(APP_ID), **changes}
        kept = {key: value for key, value in claims.items() if value is not None}
        return jwt.encode(kept, _loaded(self.keys.private_pem), algorithm="RS256")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        auth: str | None = None,
        query: tuple[tuple[str, str], ...] = (),
    ) -> Response:
        request = Request(
            method=method,
            path=path,
            query=query,
            headers=(
                ("authorization", f"Bearer {self.token if auth is None else auth}"),
                ("user-agent", "test"),
            ),
            body=b"" if body is None else msgspec.json.encode(body),
        )
        return self.send(request)

    def send(self, request: Request) -> Response:
        """Any request at all."""
        return asyncio.run(self.core.handle(request))

    def practice_request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        bearer: str = PRACTICE_TOKEN,
        raw: bytes = b"",
        query: dict[str, Any] | None = None,
    ) -> Response:
        """A request under `/practice/`."""
        request = Request(
            method=method,
            path=f"/practice/{path}",
            query=tuple((key, str(value)) for key, value in (query or {}).items()),
            headers=(("authorization", f"Bearer {bearer}"), ("content-type", "application/json")),
            body=raw if body is None else msgspec.json.encode(body),
        )
        return self.send(request)

    def open(self, jit: str, instance: str = "start-0001") -> Response:
        """A runner program connects."""
        return self.practice_request("POST", "runner/session", {"instance": instance}, bearer=jit)

    def token_of(self, installation: int) -> str:
        path = f"/app/installations/{installation}/access_tokens"
        answer = self.ask("POST", path, auth=self.jwt())
        assert answer.status == 201
        return str(answer.json()["token"])

    def mint(
        self, name: str, *, scope: str = "orgs/acme", labels: tuple[str, ...] = ("mac",)
    ) -> tuple[int, str]:
        body = {"name": name, "runner_group_id": 1, "labels": labels}
        answer = self.ask("POST", f"/{scope}/actions/runners/generate-jitconfig", body)
        assert answer.status == 201, answer
        return answer.json()["runner"]["id"], answer.json()["encoded_jit_config"]


@pytest.fixture(scope="session")
def practice_keys() -> KeyPair:
    return generate_key_pair()


@pytest.fixture
def practice(practice_keys: KeyPair) -> Practice:
    return Practice(practice_keys)


@pytest.fixture
def make_practice(practice_keys: KeyPair) -> Any:
    return lambda seed=3, **more: Practice(practice_keys, seed=seed, **more)
