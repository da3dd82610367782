"""Reads explanations in the middle of a simulated incident.

He reads what a server would read, through ways of his own: the same rows (and no rows while the database is down), the
same objects, the matcher's word, and what the living replicas say of themselves. He changes nothing.
"""

import random

from runyard.components import server
from runyard.db.contract import DatabaseError
from runyard.dispatch.deps import Deps
from runyard.github.app import AppAuth
from runyard.http.errors import TransportError
from runyard.http.loopback import Loopback
from runyard.kube.client import Kube
from runyard.kube.errors import KubeError
from runyard.sim.component_settings import server_settings
from runyard.sim.fleet import APP_ID, SPACE, Fleet
from runyard.telemetry import conditions
from runyard.telemetry.freshness import Freshness
from runyard.telemetry.health import Health
from runyard.telemetry.log import get_logger
from runyard.telemetry.meter import Meter
from runyard.web.alarms import Alarms
from runyard.web.cluster import Cluster, read_cluster
from runyard.web.explain.explainer import Explainer
from runyard.web.explain.values import Explanation, Subject, Unknown
from runyard.web.records import read_records
from runyard.web.settings import Settings
from runyard.web.snapshot import Snapshot
from runyard.web.values import Alarm, Source


class Asking:
    """Reads explanations about one fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._database = fleet.open_database()
        self._looking = Settings(namespace=SPACE)
        self._kube = fleet.open_kube()
        clock = fleet.clock
        deps = Deps(
            name="somebody",
            kube=Kube(self._kube),
            github=Loopback(fleet.github.handle),
            auth=AppAuth(app_id=APP_ID, private_key=fleet.app_key, clock=clock),
            database=self._database,
            clock=clock,
            rng=random.Random(0),
            meter=Meter(),
            log=get_logger("asking"),
            settings=server_settings(fleet.shape),
            health=Health(clock, conditions.ALL),
            freshness=Freshness(clock),
        )
        self._wired = server.wire(deps)
        self._dispatch = server.explain_inputs(self._wired)

    async def why(self, subject: Subject, id_: str) -> Explanation | Unknown:
        """Ask."""
        explainer = Explainer(
            self._database, snapshot=self._snapshot, dispatch=self._dispatch, settings=self._looking
        )
        return await explainer.explain(subject, id_)

    async def _snapshot(self) -> Snapshot:
        now = self._fleet.clock.now()
        kubernetes, cluster = await self._cluster(now)
        postgres, records = Source(name="Postgres", state="ok", as_of=now), None
        try:
            records = await read_records(
                self._database, self._looking, self._dispatch.read_matching
            )
        except DatabaseError as error:
            postgres = Source(name="Postgres", state="down", since=now, message=str(error))
        return Snapshot(
            at=now,
            postgres=postgres,
            kubernetes=kubernetes,
            records=records,
            cluster=cluster,
            alarms=self._alarms(),
        )

    async def _cluster(self, now: float) -> tuple[Source, Cluster | None]:
        try:
            await self._wired.shared.pools.refresh()
            cluster = await read_cluster(Kube(self._kube), namespace=SPACE)
        except (KubeError, TransportError) as error:
            return Source(name="Kubernetes", state="down", since=now, message=str(error)), None
        return Source(name="Kubernetes", state="ok", as_of=now), cluster

    def _alarms(self) -> tuple[Alarm, ...]:
        """The alarms of the replica that reports the most."""
        clock = self._fleet.clock
        living = [r.health for r in self._fleet.replicas if r.serving and r.health is not None]
        told = [Alarms(health, Freshness(clock), clock=clock).now() for health in living]
        return max(told, key=len, default=())
