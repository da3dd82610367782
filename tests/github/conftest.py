"""A GitHub client connected to a practice GitHub, with a manual clock."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.deliveries import Delivery
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.github.app import AppAuth
from runyard.github.budget import Budget
from runyard.github.client import GitHub
from runyard.github.scope import Scope, organisation, repository
from runyard.http.loopback import Loopback
from runyard.http.messages import Request, Response, Stream

APP_ID = 4242


class ManualClock:
    """A clock that only the test and `sleep` advance."""

    def __init__(self) -> None:
        self.t = 1_760_000_000.0

    def now(self) -> float:
        return self.t

    def monotonic(self) -> float:
        return self.t

    async def sleep(self, seconds: float) -> None:
        self.t += max(0.0, seconds)
        await asyncio.sleep(0)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        return asyncio.timeout(None)


Tamper = Callable[
    [Request, Callable[[], Awaitable[Response | Stream]]], Awaitable[Response | Stream]
]


class Wire:
    """A loopback transport that records requests and lets a test change an answer."""

    def __init__(self, core: GithubCore) -> None:
        self._loopback = Loopback(core.handle)
        self.requests: list[Request] = []
        self.tamper: Tamper | None = None

    async def send(self, request: Request, *, timeout: float) -> Response | Stream:
        self.requests.append(request)

        async def onward() -> Response | Stream:
            return await self._loopback.send(request, timeout=timeout)

        return await (onward() if self.tamper is None else self.tamper(request, onward))

    def count(self, part: str) -> int:
        return sum(part in request.path for request in self.requests)


class Fleet:
    """A practice GitHub, its transport, and a client."""

    def __init__(self, keys: KeyPair) -> None:
        self.keys = keys
        self.clock = ManualClock()
        self.delivered: list[Delivery] = []
        self.answer = 200
        self.core = GithubCore(
            clock=self.clock,
            rng=random.Random(7),
            app=PracticeApp(app_id=APP_ID, public_key=keys.public_pem, webhook_secret="hush"),
            deliver=self._deliver,
        )
        self.installation = self.core.install("Acme")
        self.core.add_repo("Acme/app")
        self.core.add_repo("Acme/lib")
        self.org: Scope = organisation("acme", installation_id=self.installation)
        self.repo: Scope = repository("acme/app", installation_id=self.installation)
        self.wire = Wire(self.core)
        self.app = AppAuth(app_id=APP_ID, private_key=keys.private_pem, clock=self.clock)
        self.budget = Budget(self.clock, points_per_minute=100_000)
        self.github = GitHub(self.wire, app=self.app, clock=self.clock, budget=self.budget)

    async def _deliver(self, delivery: Delivery) -> int:
        self.delivered.append(delivery)
        return self.answer


@pytest.fixture(scope="session")
def app_keys() -> KeyPair:
    return generate_key_pair()


@pytest.fixture
def fleet(app_keys: KeyPair) -> Fleet:
    return Fleet(app_keys)
