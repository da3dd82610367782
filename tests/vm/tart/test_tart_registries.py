"""Tests pulls from a private registry: whatever credentials the resolver finds, tart pulls with them."""

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.fixtures_registry import USER, RegistryServer, private_registry, registry_program
from tests.tart_images import tart_image
from tests.vm.process_harness import home
from tests.vm.tart_harness import QUICK, Scenario, TartHarness, cleared

from runyard.clock import RealClock
from runyard.vm.contract import PullProgress, ResolvedImage, Unauthorized
from runyard.vm.oci.credentials import Chain, Credentials, Environment, OnlyForTart
from runyard.vm.oci.registry import Registry, Settings
from runyard.vm.oci.sources import usual
from runyard.vm.tart.driver import TartDriver

__all__ = ["private_registry", "registry_program"]
pytestmark = pytest.mark.slow  # a registry, and each command of tart is a program

IMAGE = tart_image()
Sets = Callable[[Path, str], dict[str, str]]  # writes into HOME; returns variables
HELPER = f"""#!/bin/sh
read -r host
echo '{{"ServerURL": "'"$host"'", "Username": "{USER[0]}", "Secret": "{USER[1]}"}}'
"""


def config(root: Path, **content: object) -> None:
    (root / ".docker").mkdir(exist_ok=True)
    (root / ".docker" / "config.json").write_text(json.dumps(content))


def helper(root: Path) -> dict[str, str]:
    program = root / "tart-bin" / "docker-credential-test"  # on the PATH of the stand-in
    program.write_text(HELPER)
    program.chmod(0o755)
    return {}


def variables(root: Path, host: str) -> dict[str, str]:
    return {"TART_REGISTRY_USERNAME": USER[0], "TART_REGISTRY_PASSWORD": USER[1]}


def in_base64(root: Path, host: str) -> dict[str, str]:
    auth = base64.b64encode(":".join(USER).encode()).decode()
    config(root, auths={host: {"auth": auth}})
    return {}


def in_clear(root: Path, host: str) -> dict[str, str]:
    config(root, auths={host: {"username": USER[0], "password": USER[1]}})
    return {}


def helper_of_the_registry(root: Path, host: str) -> dict[str, str]:
    config(root, credHelpers={host: "test"})
    return helper(root)


def helper_of_all(root: Path, host: str) -> dict[str, str]:
    config(root, auths={host: {}}, credsStore="test")
    return helper(root)


def driver(harness: TartHarness, chain: Chain, host: str, **more: str) -> TartDriver:
    insecure = frozenset({host})
    return TartDriver(
        harness.root / "agent",
        registry=Registry(chain, RealClock(), Settings(insecure=insecure)),
        clock=harness.clock,
        settings=msgspec.structs.replace(harness.settings, insecure=insecure),
        environ={**harness.tart.environment, **more},
    )


def play(scenario: Scenario) -> None:
    async def main(root: Path) -> None:
        async with cleared(TartHarness(root, QUICK)) as harness:
            await scenario(harness)

    with home() as root:
        asyncio.run(main(root))


@pytest.mark.parametrize(
    "source", [variables, in_base64, in_clear, helper_of_the_registry, helper_of_all]
)
def test_an_image_is_pulled_with_the_credentials_that_resolved_its_tag(
    private_registry: RegistryServer, source: Sets
) -> None:
    private_registry.push(IMAGE, "acme/macos", "sequoia")
    host = private_registry.address

    async def scenario(harness: TartHarness) -> None:
        more = source(harness.root, host)
        environ = {**harness.tart.environment, **more}
        chain = usual(environ, harness.root, RealClock(), platform="linux")
        pulls = driver(harness, chain, host, **more)
        seen: list[PullProgress] = []
        pinned = (await pulls.resolve(f"{host}/acme/macos:sequoia")).reference
        await pulls.pull(pinned, progress=seen.append)
        assert [each.reference for each in await pulls.images()] == [pinned]
        assert seen[-1] == PullProgress(
            percent=100, bytes_done=IMAGE.bytes, bytes_total=IMAGE.bytes
        )
        assert USER[1] not in (harness.tart.home / "journal").read_text()

    play(scenario)


class Refusing:
    """A Keychain that refuses every reader but tart."""

    async def find(self, host: str) -> Credentials | None:
        raise OnlyForTart("the Keychain's entry was refused")


def test_a_keychain_that_only_tart_may_read_is_enough_for_a_pull(
    private_registry: RegistryServer,
) -> None:
    digest = private_registry.push(IMAGE, "acme/macos", "sequoia")
    host = private_registry.address
    image = f"{host}/acme/macos@{digest}"

    async def scenario(harness: TartHarness) -> None:
        pulls = driver(harness, Chain(Environment({}), Refusing()), host)
        with pytest.raises(Unauthorized):
            await pulls.pull(image)
        argv = ("login", host, "--username", USER[0], "--password-stdin", "--insecure")
        done = await asyncio.to_thread(harness.tart.call, *argv, stdin=USER[1].encode())
        assert done.code == 0, done
        await pulls.pull(image)
        assert [each.reference for each in await pulls.images()] == [image]

        # A tag, too: tart's pull tells what it means, and what it means later.
        tag = f"{host}/acme/macos:sequoia"
        assert await pulls.resolve(tag) == ResolvedImage(reference=tag, pinned=False)
        await pulls.pull(tag)
        assert await pulls.remembered(tag) == image
        newer = private_registry.push(tart_image(disk=b"newer" * 1000), "acme/macos", "sequoia")
        await pulls.pull(tag)
        assert await pulls.remembered(tag) == f"{host}/acme/macos@{newer}"

    play(scenario)
