"""Runs the practice GitHub as a process of `runyard up`, with one account and one repository."""

from runyard.embedded.github.serving import Practice, serve
from runyard.embedded.github.settings import PracticeSettings
from runyard.embedded.github.store import StoreError
from runyard.embedded.up.context import Context, transport
from runyard.embedded.up.layout import BadDirectory


async def run(context: Context) -> None:
    """Serve until cancelled."""
    boot, secrets = context.boot, context.secrets()
    server = transport(boot.server_url)
    practice = Practice(
        store_path=boot.layout.github,
        app_id=boot.app_id,
        public_key=secrets.app_public_key,
        webhook_secret=secrets.webhook_secret,
        practice_token=secrets.practice_token,
        settings=PracticeSettings(
            public_url=boot.github_url,
            silent_after=boot.pace.runner_silent_after,
            lost_after=boot.pace.runner_lost_after,
        ),
        server=server,
        clock=context.clock,
        rng=context.rng,
        log=context.log(),
    )
    try:
        await serve(practice, context.socket(), ready=context.ready)
    except StoreError as error:
        raise BadDirectory(str(error)) from error
    finally:
        await server.close()
