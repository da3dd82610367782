"""Serves the practice GitHub on a socket, for `runyard up` and for `runyard practice serve`."""

import asyncio
import random
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from runyard.clock import Clock
from runyard.embedded.github.core import GithubCore, PracticeApp
from runyard.embedded.github.numbers import epoch_at
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.store import RecordStore
from runyard.embedded.github.webhook_sender import webhook_sender
from runyard.http.messages import Transport
from runyard.http.server import listen
from runyard.telemetry.log import Logger


class Practice(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies and settings of one practice GitHub."""

    store_path: Path
    """The file with its state."""
    app_id: int
    public_key: str
    webhook_secret: str
    practice_token: str
    settings: PracticeSettings
    server: Transport
    """Where webhooks are sent."""
    clock: Clock
    rng: random.Random
    log: Logger

    def __repr__(self) -> str:
        return f"Practice({self.settings.public_url})"


async def serve(practice: Practice, sock: socket.socket, *, ready: Callable[[], None]) -> None:
    """Serve until cancelled; raises `StoreError` if its store cannot be used."""
    store, log = RecordStore(practice.store_path), practice.log
    core = GithubCore(
        clock=practice.clock,
        rng=practice.rng,
        app=PracticeApp(
            app_id=practice.app_id,
            public_key=practice.public_key,
            webhook_secret=practice.webhook_secret,
            practice_token=practice.practice_token,
        ),
        deliver=webhook_sender(practice.server),
        on_event=lambda what, detail: log.info(
            what, **{f"github_{k}": v for k, v in detail.items()}
        ),
        settings=msgspec.structs.replace(practice.settings, epoch=epoch_at(practice.clock.now())),
        store=store,
    )
    listening = await listen(core.handle, sock=sock)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(core.run())
            ready()
    finally:
        await listening.close()
        store.close()
