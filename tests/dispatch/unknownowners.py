"""A server with Pods whose stamp names an owner that nobody knows, for the tests of their reaping."""

from typing import Any

from tests.dispatch.dispatchharness import SPACE, Guest, Harness

from runyard.components import server
from runyard.embedded.github.session import RunnerSession
from runyard.github.scope import parse
from runyard.telemetry import conditions
from runyard.telemetry.health import Health
from runyard.wire import names

NOBODY = {names.POOL_OWNER: "nobody-we-know"}
AGAIN = 301.0  # a lookup that proved nothing is repeated after so long


class Fleet:
    """A server whose conditions can be read, with the installations of its App."""

    def __init__(self, harness: Harness, **changes: Any) -> None:
        self.harness = harness
        self.health = Health(harness.clock, conditions.ALL)
        self.server = server.wire(harness.deps(health=self.health, **changes))
        self.newco = harness.github.install("newco")  # never heard of
        harness.github.add_repo("newco/tool")
        harness.deliver = False

    async def known(self) -> None:
        """Insert a pool and the tenant acme, as its first webhook does."""
        self.harness.deliver = True
        await self.harness.pool()
        await self.harness.queued("acme/app", ("ubuntu-latest",))
        self.harness.deliver = False

    async def leak(self, number: int = 1) -> Guest:
        """A Pod of nobody we know, that is older than the grace and has never polled."""
        guest = await self.harness.pod(number, **NOBODY)
        await self.harness.clock.sleep(301)
        return guest

    async def tick(self) -> int:
        """Retire what can be retired, and delete it; returns the number of requests to GitHub."""
        sent = len(self.harness.github_wire.requests)
        await self.server.recovery.stamped.step()
        self.harness.served_long()
        await self.server.recovery.sweeper.step()
        return len(self.harness.github_wire.requests) - sent

    async def register(self, guest: Guest, scope: str) -> RunnerSession:
        """Register the Pod's runner in that scope, and connect it."""
        accounts = {"acme": self.harness.acme, "mona": self.harness.mona, "newco": self.newco}
        minted = await self.harness.server.shared.github.generate_jit(
            parse(scope, installation_id=accounts[scope.split("/")[1]]),
            name=guest.name,
            labels=("lost",),
        )
        session = self.harness.github.connect(minted.encoded_jit_config)
        assert isinstance(session, RunnerSession)
        return session

    def there(self, *guests: Guest) -> list[bool]:
        found = (self.harness.kube.find("pods", SPACE, guest.name) for guest in guests)
        return [each is not None for each in found]

    @property
    def reported(self) -> str:
        """The message of the condition; empty if it is fine."""
        found = [each for each in self.health.report() if each.code == "unknown-stamp-owner"]
        return found[0].message if found else ""
