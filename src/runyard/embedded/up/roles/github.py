"""The practice GitHub as a process, with one account and one repository to try things with."""

import asyncio

from runyard.embedded.github.carrier import carrier
from runyard.embedded.github.core import GithubCore
from runyard.embedded.github.keep import Keeper, KeepError
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.up.context import Context, transport
from runyard.embedded.up.layout import BadDirectory
from runyard.http.server import listen


async def run(context: Context) -> None:
    """Serve until cancelled."""
    boot, secrets = context.boot, context.secrets()
    try:
        keeper = Keeper(boot.layout.github)
    except KeepError as error:
        raise BadDirectory(str(error)) from error
    server, log = transport(boot.server_url), context.log()
    core = GithubCore(
        clock=context.clock,
        rng=context.rng,
        app_id=boot.app_id,
        public_key=secrets.app_public_key,
        webhook_secret=secrets.webhook_secret,
        deliver=carrier(server),
        on_event=lambda what, detail: log.info(
            what, **{f"github_{k}": v for k, v in detail.items()}
        ),
        settings=PracticeSettings(
            public_url=boot.github_url,
            silent_after=boot.pace.runner_silent_after,
            lost_after=boot.pace.runner_lost_after,
        ),
        people_token=secrets.people_token,
        keeper=keeper,
    )
    listening = await listen(core.handle, sock=context.socket())
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(core.run())
            context.ready()
    finally:
        await listening.close()
        await server.close()
        keeper.close()
