"""The crash matrix: find every point of a server's work, kill the process at each, measure until all is at rest.

A run without a fault finds the points. A run with one crash in the middle of a dispatch finds those of the repair,
and there the process is killed a second time. Fleets work side by side, each with servers and a database of its
own, because most of the time is spent waiting for deadlines.
"""

import asyncio
import contextlib
import math
import random
import tempfile
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import msgspec
from benches.recovery.fleet import Fleet, Sizes, fleet
from benches.recovery.points import Point
from benches.recovery.rest import at_rest

from runyard.db import migrate
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.postgres.databases import create_database
from runyard.embedded.postgres.server import EmbeddedPostgres

EVERY = 0.25  # seconds between jobs under load
JOB = 0.4  # seconds that a job takes
PATIENCE = 30.0  # for a point to be reached
LOAD = 32  # jobs at most, until it is
WITHIN = 240.0  # nothing here takes longer, or it is a defect
IN_REPAIR = Point("commit: arm", "before", 1)  # leaves most behind: claim, stamp and registration
_DIED = "died "
_OFTEN = 4  # times in an undisturbed run of a dozen jobs


class Case(msgspec.Struct, frozen=True):
    """One crash, or a second one in the repair of the first."""

    point: Point
    second: bool = False
    at_start: bool = False  # seldom under load: a life begins with this order


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one case ended; without `seconds` the point was not reached."""

    case: Case
    seconds: float | None = None
    failure: str = ""
    last: str = ""  # what kept it from rest until then


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What all fleets of a run stand on."""

    folder: Path
    postgres: str
    key: KeyPair

    @contextlib.asynccontextmanager
    async def fleet(
        self,
        name: str,
        *,
        sizes: Sizes | None = None,
        deadlines: dict[str, float] | None = None,
    ) -> AsyncIterator[Fleet]:
        """A fleet of its own, at rest."""
        url = await asyncio.to_thread(
            create_database, self.postgres, f"fleet_{name}", template="migrated"
        )
        async with fleet(
            self.folder / name,
            database=url,
            key=self.key,
            sizes=sizes,
            deadlines=deadlines,
            seed=name,
        ) as made:
            await at_rest(made, within=60.0)
            yield made


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """A Postgres server and a folder, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="runyard-recovery-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server's user passes through
        with EmbeddedPostgres(folder / "postgres", max_connections=300) as conninfo:
            migrate.apply(create_database(conninfo, "migrated"))
            yield Ground(folder=folder, postgres=conninfo, key=generate_key_pair())


async def discover(made: Fleet) -> tuple[Counter[str], Counter[str]]:
    """The names of all effects, with how often: of undisturbed work, and those that only a repair has."""
    (server,) = made.servers
    for _ in range(12):
        made.queue(seconds=JOB)
        await asyncio.sleep(EVERY)
    await at_rest(made, within=WITHIN)
    usual = Counter(server.effects())
    await _die(made, IN_REPAIR)
    server.start()
    await at_rest(made, within=WITHIN)
    repair = Counter(name for name in server.effects() if not name.startswith(_DIED))
    return usual, Counter({name: n for name, n in repair.items() if name not in usual})


def cases(usual: Counter[str], repair: Counter[str], *, rng: random.Random) -> list[Case]:
    """One before and one after each effect; a frequent one is met at any of its first turns."""
    found = []
    for second, names in ((False, usual), (True, repair)):
        for name, count in sorted(names.items()):
            for when in ("before", "after"):
                seldom = second or count < _OFTEN
                nth = 1 if seldom else rng.randint(1, min(4, count // 2))
                found.append(Case(Point(name, when, nth), second, seldom and not second))
    return found


async def crash(made: Fleet, case: Case) -> Outcome:
    """Kill the server there, start it again at once, and wait for rest."""
    (server,) = made.servers
    try:
        point = case.point
        reached = not case.second and (
            (not case.at_start and await _die(made, point)) or await _again(made, point)
        )
        if not reached:  # perhaps only a repair gets there
            case = Case(point, second=True)
            reached = await _die(made, IN_REPAIR) and await _die(made, point, start=True)
        if not reached:
            return Outcome(case=case)
        died = made.clock.monotonic()
        server.start()
        await at_rest(made, within=WITHIN)
        took = made.clock.monotonic() - died
        return Outcome(case=case, seconds=took, last="; ".join(made.last[:3]))
    except AssertionError as error:
        return Outcome(case=case, failure=str(error))


async def _again(made: Fleet, point: Point) -> bool:
    """Some effects happen when a server starts, and then not for minutes: begin a life with that order."""
    (server,) = made.servers
    server.signal(9)
    await server.dead()
    return await _die(made, msgspec.structs.replace(point, nth=1), start=True)


async def _die(made: Fleet, point: Point, *, start: bool = False) -> bool:
    """Order a death and let jobs come until it happens; False if it does not."""
    (server,) = made.servers
    server.order(point)
    if start:
        server.start()
    until = made.clock.monotonic() + PATIENCE
    queued = 0
    while server.alive and made.clock.monotonic() < until:
        if queued < LOAD:
            made.queue(seconds=JOB)
            queued += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY):
                await server.dead()
    died = not server.alive
    server.order(None)
    if died and not server.effects()[-1].startswith(_DIED):
        raise AssertionError(f"the server ended by itself:\n{server.tail()}")
    return died


async def run_cases(
    place: Ground, todo: Iterable[Case], *, side_by_side: int, minutes: float = math.inf
) -> AsyncIterator[Outcome]:
    """The outcomes as they come, from that many fleets; after `minutes` no new case is begun."""
    waiting = deque(todo)
    done: asyncio.Queue[Outcome | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    until = loop.time() + 60.0 * minutes

    async def work(number: int) -> None:
        while waiting and loop.time() < until:
            # A fleet that has failed is left alone: what it left behind would spoil the next case.
            async with place.fleet(f"{number}_{len(waiting)}") as made:
                await _serve(made)
        await done.put(None)

    async def _serve(made: Fleet) -> None:
        (server,) = made.servers
        while waiting and loop.time() < until:
            outcome = await crash(made, waiting.popleft())
            await done.put(outcome)
            if outcome.failure:
                return
            if outcome.seconds is None:
                if not server.alive:
                    server.start()
                await server.ready()
                await at_rest(made, within=WITHIN)

    async with asyncio.TaskGroup() as group:
        for number in range(side_by_side):
            group.create_task(work(number))
        working = side_by_side
        while working:
            outcome = await done.get()
            if outcome is None:
                working -= 1
            else:
                yield outcome
