"""Sends webhooks to a receiver over a transport."""

from runyard.embedded.github.deliveries import Deliver, Delivery
from runyard.http.messages import Stream, Transport
from runyard.wire.paths import GITHUB_WEBHOOK

_AT_MOST = 60.0  # the core's own timeout is shorter and decides; this one only bounds a leak


def webhook_sender(transport: Transport, *, path: str = GITHUB_WEBHOOK) -> Deliver:
    """The `deliver` argument of `GithubCore`. A transport's error is a failed delivery; nothing is retried."""

    async def deliver(delivery: Delivery) -> int:
        answer = await transport.send(delivery.request(path), timeout=_AT_MOST)
        if isinstance(answer, Stream):
            await answer.aclose()
        return answer.status

    return deliver
