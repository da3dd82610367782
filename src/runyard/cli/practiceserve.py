"""`runyard practice serve`: serves the practice GitHub as a separate process, to try a fleet on a cluster."""

import asyncio
import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from runyard.cli.options import LOGGING, BadSetting, listen_option, with_options

if TYPE_CHECKING:
    from runyard.embedded.up.layout import Layout
    from runyard.embedded.up.secrets import Secrets

APP_ID = 1
SERVER = "http://127.0.0.1:8080"


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """All options, from the command line or the environment."""

    data: Path
    listen: str
    server_url: str
    as_json: bool
    log_level: str


@click.command(context_settings={"max_content_width": 110})
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory of its state, keys and images; kept across restarts.",
)
@listen_option(
    "127.0.0.1:8088", "the API, which must be loopback because it checks few credentials"
)
@click.option(
    "--server-url",
    default=SERVER,
    show_default=True,
    help="Base URL of the dispatch server: webhooks are sent to it.",
)
@with_options(LOGGING)
def serve(**given: object) -> None:
    """Serve a practice GitHub with an App, one account and one repository, to try a fleet on a cluster.

    It writes the files that the other components need into the data directory: DATA/app for
    `runyard server --github-dir`, and DATA/images for `runyard agent --images`. Its runners have the label runyard;
    their images are runyard.local/practice-runner:1 and :2.

    \b
    runyard practice serve --data practice
    runyard server --github-dir practice/app …
    runyard practice --data practice 'echo hello'             push a job and show its log
    """
    from runyard.cli.lifecycle import run_component
    from runyard.telemetry.log import configure

    flags = msgspec.convert(given, Flags)
    configure(level=flags.log_level, json=flags.as_json)
    run_component(_live(flags))


async def _live(flags: Flags) -> None:
    from runyard.cli.lifecycle import stop_on_signal, until
    from runyard.cli.serverfiles import address, listening_socket, transport_to
    from runyard.clock import RealClock
    from runyard.embedded.github import serving
    from runyard.embedded.github.settings import PracticeSettings
    from runyard.embedded.github.store import StoreError
    from runyard.embedded.up import stores
    from runyard.embedded.up.layout import BadDirectory, Layout
    from runyard.embedded.up.secrets import load_or_make
    from runyard.http.addresses import is_loopback
    from runyard.telemetry.causes import first_of
    from runyard.telemetry.log import get_logger

    if not is_loopback(address("--listen", flags.listen)[0]):
        raise BadSetting(
            "--listen: a practice GitHub checks few credentials, so it is served on loopback only. Use 127.0.0.1:PORT"
        )
    ending, clock, rng = stop_on_signal(), RealClock(), random.SystemRandom()
    layout = Layout(flags.data.absolute())
    async with contextlib.AsyncExitStack() as stack:
        try:
            layout.prepare()
            secrets = load_or_make(layout, rng)
            stores.check(layout, (stores.GITHUB,))
        except BadDirectory as error:
            raise BadSetting(f"--data: {error}") from None
        server = transport_to("--server-url", flags.server_url)
        stack.push_async_callback(server.close)
        sock = listening_socket(flags.listen)
        stack.callback(sock.close)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        await asyncio.to_thread(_write_files, layout, secrets, url)
        practice = serving.Practice(
            store_path=layout.github,
            app_id=APP_ID,
            public_key=secrets.app_public_key,
            webhook_secret=secrets.webhook_secret,
            practice_token=secrets.practice_token,
            settings=PracticeSettings(public_url=url),
            server=server,
            clock=clock,
            rng=rng,
            log=get_logger("github"),
        )
        begun = asyncio.Event()
        work = serving.serve(practice, sock, ready=begun.set)
        try:
            async with asyncio.TaskGroup() as group:
                announcing = group.create_task(
                    _announce(begun, flags, url, layout, secrets.practice_token)
                )
                await until(ending, work)
                announcing.cancel()
        except* StoreError as group_error:
            raise BadSetting(f"--data: {first_of(group_error)}") from None


async def _announce(
    begun: asyncio.Event, flags: Flags, url: str, layout: "Layout", token: str
) -> None:
    """Wait until it serves, create the account and the repository, then print the URL."""
    from runyard.cli.lifecycle import announce
    from runyard.embedded.up import stores
    from runyard.embedded.up.practice import ACCOUNT, REPOSITORY
    from runyard.embedded.up.practice_client import PracticeClient
    from runyard.http.client import HttpTransport

    await begun.wait()
    transport = HttpTransport(url)
    try:
        await PracticeClient(transport, token=token).install(ACCOUNT, REPOSITORY)
    finally:
        await transport.close()
    stores.record(layout, (stores.GITHUB,))
    text = f"serving {url}, with the repository {REPOSITORY}"
    announce(text, as_json=flags.as_json, event="serving", url=url, name=REPOSITORY)


def _write_files(layout: "Layout", secrets: "Secrets", url: str) -> None:
    """Write what the other components need."""
    from runyard.cli.githubfiles import AppDirectory, Connected
    from runyard.embedded.up import images
    from runyard.files import write_whole

    port = int(url.rpartition(":")[2])
    write_whole(layout.ports, msgspec.json.encode({"github": port}))
    directory = AppDirectory(layout.root / "app")
    directory.prepare()
    app = Connected(app_id=APP_ID, slug="practice", html_url=url, github_url=url)
    directory.keep(app, key=secrets.app_key, secret=secrets.webhook_secret)
    images.build(layout)
