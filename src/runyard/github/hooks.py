"""Reads GitHub's log of webhook deliveries and requests redeliveries.

An App has one webhook. With a token for one repository it is that repository's webhook for this server, which is found
by the path of its address.
"""

import msgspec

from runyard.github import answers, errors
from runyard.github.calls import Calls, read
from runyard.github.scope import Scope
from runyard.github.views import DeliveryPage, DeliveryView, FullDelivery
from runyard.http.messages import Pairs, Response
from runyard.wire.paths import GITHUB_WEBHOOK

_PAGE = 100


class _Config(msgspec.Struct):
    url: str = ""


class _Hook(msgspec.Struct):
    id: int
    active: bool = True
    events: tuple[str, ...] = ()
    config: _Config = msgspec.field(default_factory=_Config)

    @property
    def ours(self) -> bool:
        address = self.config.url.partition("?")[0].rstrip("/")
        wanted = "workflow_job" in self.events or "*" in self.events
        return self.active and wanted and address.endswith(GITHUB_WEBHOOK)


_attempts = msgspec.json.Decoder(tuple[DeliveryView, ...])
_attempt = msgspec.json.Decoder(FullDelivery)
_hooks = msgspec.json.Decoder(tuple[_Hook, ...])


class Hooks:
    """Deliveries of the webhook for this server."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._own: int | None = None

    async def deliveries(self, *, cursor: str = "", purpose: str = "audit") -> DeliveryPage:
        """One page of attempts to deliver our webhook, newest first."""
        query: Pairs = (("per_page", str(_PAGE)),)
        if cursor:
            query = (*query, ("cursor", cursor))
        response = await self._request("GET", "", query=query, purpose=purpose)
        self._calls.require(response, what="deliveries", scope=self._calls.only)
        items = read(_attempts, response, what="deliveries")
        return DeliveryPage(items=items, next_cursor=answers.next_cursor(response))

    async def delivery(self, delivery_id: int, *, purpose: str = "audit") -> FullDelivery | None:
        """One attempt with its payload; `None` when GitHub no longer stores it."""
        response = await self._request("GET", f"/{delivery_id}", purpose=purpose)
        if response.status == 404:
            return None
        self._calls.require(response, what=f"delivery {delivery_id}", scope=self._calls.only)
        return read(_attempt, response, what=f"delivery {delivery_id}")

    async def redeliver(self, delivery_id: int) -> bool:
        """Request another attempt; `False` when GitHub no longer stores that one."""
        response = await self._request("POST", f"/{delivery_id}/attempts", purpose="audit")
        if response.status == 404:
            return False
        self._calls.require(response, what=f"redeliver {delivery_id}", scope=self._calls.only)
        return True

    async def _request(
        self, method: str, rest: str, *, purpose: str, query: Pairs = ()
    ) -> Response:
        repo = self._calls.only
        if repo is None:
            path = f"/app/hook/deliveries{rest}"
            return await self._calls.as_app(method, path, query=query, purpose=purpose)
        if self._own is None:
            self._own = await self._find(repo)
        path = f"/{repo}/hooks/{self._own}/deliveries{rest}"
        response = await self._calls.as_installation(
            repo, method, path, query=query, purpose=purpose
        )
        if response.status == 404 and not rest:
            self._own = None  # it was deleted; perhaps there is another one now
        return response

    async def _find(self, repo: Scope) -> int:
        """Find the repository's webhook for this server; `NoHook` if there is none."""
        query = (("per_page", str(_PAGE)),)
        response = await self._calls.as_installation(
            repo, "GET", f"/{repo}/hooks", query=query, purpose="read"
        )
        self._calls.require(response, what=f"webhooks of {repo}", scope=repo)
        found = read(_hooks, response, what=f"webhooks of {repo}")
        for hook in found:
            if hook.ours:
                return hook.id
        raise errors.NoHook(
            f"{repo} has no active webhook for workflow_job events with an address that ends in"
            f" {GITHUB_WEBHOOK}; add one"
        )
