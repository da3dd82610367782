"""What `runyard agent --joined` adds: the settings that joining wrote, and what runs beside the agent.

The polls of runners are passed on to the main machine (`forwarding`), and the credential is renewed. The images of
hosts that run processes are built here, as the main machine builds them for its own: with the practice runner or, for a
real GitHub, with the one that `runyard host join` was given. The log of the service is kept short.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from runyard.cli.agent import Flags
from runyard.cli.options import BadSetting
from runyard.clock import Clock
from runyard.components.hosting import RUNNER_REQUESTS
from runyard.embedded.up import images
from runyard.embedded.up.layout import Layout
from runyard.hosts.joining.accepted import AcceptedTransport
from runyard.hosts.joining.client import address_towards
from runyard.hosts.joining.forwarder import forwarding
from runyard.hosts.joining.membership import Membership, MembershipFiles, NotJoined
from runyard.hosts.joining.renewal import Renewal
from runyard.kube.client import Kube
from runyard.node.deps import Deps
from runyard.telemetry.health import Health
from runyard.telemetry.log import Logger

_LOOPBACK = "127.0.0.1"


class Host:
    """An agent with its own kubeconfig: nothing is added."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags

    async def beside(self, work: Coroutine[Any, Any, None], deps: Deps) -> None:
        """Run the agent, with what it needs beside it."""
        await work

    def watched(self, kube: Kube, health: Health, log: Logger) -> Kube:
        """The client of the agent."""
        return kube


class JoinedHost(Host):
    """An agent of a machine that joined another one."""

    def __init__(self, flags: Flags, membership: Membership, renewal: Renewal) -> None:
        super().__init__(flags)
        self._membership = membership
        self._renewal = renewal

    async def beside(self, work: Coroutine[Any, Any, None], deps: Deps) -> None:
        """Run the agent, and renew the credential meanwhile."""
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(
                self._renewal.run(meter=deps.meter, log=deps.log, freshness=deps.freshness)
            )
            await work
            renewing.cancel()

    def watched(self, kube: Kube, health: Health, log: Logger) -> Kube:
        """The client of the agent, which notices that the main machine does not accept this host any more."""
        url, host = self._membership.url, self._membership.name
        return kube.through(
            lambda inner: AcceptedTransport(
                inner, url=url, host=host, data=self.flags.data, health=health, log=log
            )
        )


@contextlib.asynccontextmanager
async def joined_host(flags: Flags, *, clock: Clock) -> AsyncIterator[Host]:
    """The flags to run with, completed by what joining wrote if `--joined` says so."""
    if not flags.joined:
        yield Host(flags)
        return
    files = MembershipFiles(flags.data)
    try:
        membership = files.read()
        files.credential()  # a missing one is an error now
        _check(flags, membership)
        await asyncio.to_thread(_build_images, flags, membership)
        async with forwarding(files, practice=RUNNER_REQUESTS) as url:
            completed = _completed(flags, files, membership, url)
            yield JoinedHost(completed, membership, Renewal(files, clock=clock))
    except NotJoined as error:
        raise BadSetting(f"--joined: {error}") from None


def _build_images(flags: Flags, membership: Membership) -> None:
    layout = Layout(flags.data)
    if flags.images != layout.images:
        return
    if not membership.practice_url and not membership.runner:
        return  # VMs, which have images of their own
    try:
        images.build(layout, Path(membership.runner) if membership.runner else None)
    except FileNotFoundError as error:
        raise BadSetting(
            f"--joined: {error}. Put the actions runner back, or join again with another --runner"
        ) from None
    if membership.practice_url:
        images.build_archive(layout)


def _check(flags: Flags, membership: Membership) -> None:
    for flag, given, known in (
        ("--kubeconfig", flags.kubeconfig, ""),
        ("--node-name", flags.node_name, membership.name),
    ):
        if given and given != known:
            raise BadSetting(
                f"{flag}: with --joined it is what 'runyard host join' wrote. Remove one of the two"
            )


def _completed(flags: Flags, files: MembershipFiles, membership: Membership, url: str) -> Flags:
    address = flags.node_ip if flags.node_ip != _LOOPBACK else address_towards(membership.url)
    labels = ",".join(part for part in (membership.labels, flags.node_labels) if part)
    return msgspec.structs.replace(
        flags,
        kubeconfig=str(files.kubeconfig),
        node_name=membership.name,
        node_ip=address,
        fleet=membership.fleet or flags.fleet,
        node_labels=labels,
        server_url=flags.server_url or url,
        practice_url=flags.practice_url or (url if membership.practice_url else ""),
        runner_archive=flags.runner_archive or _practice_archive(flags, membership),
    )


def _practice_archive(flags: Flags, membership: Membership) -> str:
    """The practice runner, for VMs whose image has none; empty with a real GitHub."""
    return str(images.practice_archive(Layout(flags.data))) if membership.practice_url else ""
