"""Runs a real apiserver without controllers beside a new embedded API for each sequence.

Without controllers only the requests themselves change the real server's objects, so responses can be compared
one by one. The namespaces of the sequences are created when they are needed, with the account that Pods need.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import controlplane
from tests.conformance.kube import backends
from tests.conformance.kube.kinds import GAUGE_DEFINITION, KINDS
from tests.conformance.kube.kit import Api
from tests.conformance.kube.replay import Difference, Player, compare
from tests.conformance.kube.sequences import Step

from runyard.http.client import HttpTransport
from runyard.http.loopback import Loopback
from runyard.wire import manifests

RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Pair:
    """Both servers; a context."""

    def __init__(self, assets: controlplane.Assets, folder: Path) -> None:
        self.plane = controlplane.ControlPlane(assets, folder, controllers=False, scheduler=False)
        self._runner = asyncio.Runner()
        self._transport = HttpTransport(self.plane.url, tls=self.plane.tls())
        self._count = 0

    def __enter__(self) -> Self:
        self._runner.run(self._install())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._transport.close())
        self._runner.close()
        self.plane.stop()

    def _real(self, space: str) -> Api:
        return Api(
            self._transport, space=space, token=controlplane.ADMIN, version=self.plane.version
        )

    async def _install(self) -> None:
        """Installs runyard's kind and the kind made for this comparison."""
        api = self._real("default")
        for definition in (*manifests.definitions(), GAUGE_DEFINITION):
            await api.create(CRDS, definition)
        for kind in KINDS:

            async def served(path: str = kind.path("default")) -> bool | None:
                return (await api.call("GET", path)).status == 200 or None

            await api.eventually(served)

    def differences(self, steps: tuple[Step, ...]) -> Iterator[Difference]:
        """Where the answers of the two servers to this sequence differ."""
        self._count += 1
        return self._runner.run(self._play(steps, f"seq-{self._count}"))

    async def _play(self, steps: tuple[Step, ...], space: str) -> Iterator[Difference]:
        real = self._real(space)
        core = backends.make_core()
        embedded = Api(
            Loopback(core.handle), space=space, token=backends.ADMIN, version=backends.NEWEST
        )
        await embedded.create(CRDS, GAUGE_DEFINITION)
        for each in manifests.runtime_classes():  # the other server does not have it from the start
            await embedded.ok("DELETE", f"{RUNTIME_CLASSES}/{each['metadata']['name']}")
        core._controllers.handlers = lambda event: ()  # the other server has none
        for api in (real, embedded):
            await api.create("/api/v1/namespaces", {"metadata": {"name": space}})
            await api.create(api.path("serviceaccounts"), {"metadata": {"name": "default"}})
        answers = await Player(real).play(steps), await Player(embedded).play(steps)
        assert not core.failures, core.failures
        return compare(*answers)
