"""Ask why: one question about a job, a Pod, a pool or a runner, one chain of reasons as the answer.

    explainer = Explainer(database, picture=dashboard.picture, dispatch=Dispatch(…), …)
    await explainer.explain("job", "48190300")

The fleet is taken as the dashboard has it, so a hundred questions cost no more than a look; only the rows of the one
thing are read for the question itself. A source that does not answer is the answer, if the rest depends on it.
"""

from collections.abc import Awaitable, Callable

import msgspec

from runyard.db.contract import Database, DatabaseError
from runyard.dispatch.machine.values import SlotState
from runyard.dispatch.matching.values import Matching
from runyard.telemetry.log import redact
from runyard.web.explain import outside
from runyard.web.explain.jobs import of_job
from runyard.web.explain.pods import drained, of_pod, on_host, stamped
from runyard.web.explain.pools import of_pool
from runyard.web.explain.reading import Rows, number, read_job, read_slot
from runyard.web.explain.scene import Purse, Scene, SlotFacts, Terms, scene_of
from runyard.web.explain.slots import of_slot
from runyard.web.explain.values import Explanation, Step, Subject, Unknown, explained
from runyard.web.picture import Picture
from runyard.web.settings import Settings as Looking
from runyard.web.values import Source
from runyard.wire import names

JOBS = "the jobs that GitHub has told of (a webhook that was lost is made up for by the audit, within minutes)"
SLOTS = "the slots of Pods that have asked for work, open and closed (a number: while GitHub may have its runner)"
PODS = "the runner Pods in Kubernetes"
POOLS = "the RunnerPools in Kubernetes"
_MESSAGE = 300


async def _no_purses() -> tuple[Purse, ...]:
    return ()


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """What of the dispatch server an explanation stands on: its matcher's word, its budget's, its terms."""

    look: Callable[[], Awaitable[Matching]]
    terms: Terms = Terms()
    purses: Callable[[], Awaitable[tuple[Purse, ...]]] = _no_purses


class Explainer:
    """Answers questions; holds nothing."""

    def __init__(
        self,
        database: Database,
        *,
        picture: Callable[[], Awaitable[Picture]],
        dispatch: Dispatch,
        settings: Looking,
    ) -> None:
        self._database = database
        self._picture = picture
        self._dispatch = dispatch
        self._settings = settings

    async def explain(self, subject: Subject, id_: str) -> Explanation | Unknown:
        """Why it is as it is; `Unknown` if there is no such thing."""
        picture = await self._picture()
        unknown = _unread(picture)
        down = _down(picture)
        chain: tuple[Step, ...] | None
        try:
            chain = await self._chain(subject, id_, await self._scene(picture))
        except DatabaseError as error:
            source = Source(
                name="Postgres", state="down", message=str(redact(str(error)))[:_MESSAGE]
            )
            chain = (outside.database(down or source),)
        if not chain:
            if not unknown:
                return Unknown(subject=subject, id=id_, searched=_SEARCHED[subject])
            away = picture.kubernetes if down is None else down
            chain = (outside.kubernetes(away) if down is None else outside.database(away),)
        return explained(subject, id_, chain, at=picture.at, unknown=unknown)

    async def _chain(self, subject: Subject, id_: str, scene: Scene) -> tuple[Step, ...]:
        if subject == "job":
            return await self._job(id_, scene)
        if subject == "pool":
            pool = scene.pool(id_)
            return () if pool is None else of_pool(pool, scene)
        rows = await read_slot(self._database, id_, self._dispatch.terms)
        return of_runner(id_, rows.slot, scene)

    async def _job(self, id_: str, scene: Scene) -> tuple[Step, ...]:
        job_id = number(id_)
        if job_id is None:
            return ()
        rows: Rows = await read_job(self._database, job_id, self._dispatch.terms)
        return () if rows.job is None else of_job(rows.job, rows.slot, scene)

    async def _scene(self, picture: Picture) -> Scene:
        purses = await self._dispatch.purses()
        return scene_of(picture, self._settings, self._dispatch.terms, purses=purses)


def of_runner(name: str, slot: SlotFacts | None, scene: Scene) -> tuple[Step, ...]:
    """A Pod and its slot together: the slot is the authority on work, the Pod on existence."""
    pod = scene.pod(name if slot is None else slot.slot.pod_uid)
    if slot is None or (slot.slot.state is SlotState.CLOSED and pod is not None):
        return () if pod is None else of_pod(pod, scene)
    if slot.slot.state is SlotState.IDLE and pod is not None:
        if pod.metadata.labels.get(names.POOL_OWNER):
            return stamped(pod, scene)
        if pod.metadata.deletion_timestamp:
            return of_pod(pod, scene)
        leaving = drained(pod)
        if leaving:
            return leaving
    return on_host(of_slot(slot, scene), pod, scene)


_SEARCHED: dict[Subject, tuple[str, ...]] = {
    "job": (JOBS,),
    "pod": (PODS, SLOTS),
    "runner": (SLOTS, PODS),
    "pool": (POOLS,),
}


def _down(picture: Picture) -> Source | None:
    return picture.postgres if picture.postgres.state == "down" else None


def _unread(picture: Picture) -> tuple[str, ...]:
    sources = (picture.postgres, picture.kubernetes)
    return tuple(f"{s.name}: {s.message}" for s in sources if s.state == "down")
