"""The crash matrix: finds every effect of a server, kills the process at each, measures until the fleet is at rest.

A run without a fault finds the effects. A run with one crash during a dispatch finds those of the repair, and kills the
process a second time there. Fleets run in parallel, each with its own servers and database, because most of the time is
spent waiting for deadlines.
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
from benches.recovery.settled import at_rest

from runyard.db import migrate
from runyard.embedded.github.identity import KeyPair, generate_key_pair
from runyard.embedded.postgres.databases import create_database
from runyard.embedded.postgres.server import EmbeddedPostgres

EVERY = 0.25  # seconds between jobs under load
JOB = 0.4  # seconds that a job takes
PATIENCE = 30.0  # for a point to be reached
LOAD = 32  # jobs at most, until it is
WITHIN = 240.0  # a recovery that takes longer is a defect
IN_REPAIR = Point(
    "commit: arm", "before", 1
)  # leaves most behind: a claim, a stamp and a registration
_DIED = "died "
# A repair of that crash has at least these effects: without them, the kill was not where its name says.
_OF_THE_REPAIR = ("commit: swept", "github: DELETE /orgs/*/actions/runners/*")
_OFTEN = 4  # times in an undisturbed run of a dozen jobs


class Case(msgspec.Struct, frozen=True):
    """One crash, or a second one in the repair of the first."""

    point: Point
    second: bool = False
    at_start: bool = False  # rare under load: restart the server with the order


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one case ended; without `seconds` the point was not reached."""

    case: Case
    seconds: float | None = None
    failure: str = ""
    last: str = ""  # what kept the fleet from settling until then


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The Postgres server, folder and key that all fleets of a run share."""

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
        """Run a new fleet and wait until it has settled."""
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
def open_environment() -> Iterator[Environment]:
    """Start a Postgres server for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="runyard-recovery-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server's user passes through
        with EmbeddedPostgres(folder / "postgres", max_connections=300) as conninfo:
            migrate.apply(create_database(conninfo, "migrated"))
            yield Environment(folder=folder, postgres=conninfo, key=generate_key_pair())


async def discover(made: Fleet) -> tuple[Counter[str], Counter[str]]:
    """Find the effects and how often each happens: of undisturbed work, and those of a repair only."""
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
    missing = [name for name in _OF_THE_REPAIR if name not in repair]
    assert not missing, f"the repair after {IN_REPAIR} has no {missing}; it has {sorted(repair)}"
    return usual, Counter({name: n for name, n in repair.items() if name not in usual})


def cases(usual: Counter[str], repair: Counter[str], *, rng: random.Random) -> list[Case]:
    """Return a crash before and one after each effect; a frequent effect gets a random one of its occurrences."""
    found = []
    for second, names in ((False, usual), (True, repair)):
        for name, count in sorted(names.items()):
            for when in ("before", "after"):
                seldom = second or count < _OFTEN
                nth = 1 if seldom else rng.randint(1, min(4, count // 2))
                found.append(Case(Point(name, when, nth), second, seldom and not second))
    return found


async def crash(made: Fleet, case: Case) -> Outcome:
    """Kill the server at the point, restart it, and wait until the fleet has settled."""
    (server,) = made.servers
    try:
        point = case.point
        reached = not case.second and (
            (not case.at_start and await _die(made, point)) or await _again(made, point)
        )
        if not reached:  # perhaps only a repair reaches it, and perhaps only once
            case = Case(msgspec.structs.replace(point, nth=1), second=True)
            reached = await _die(made, IN_REPAIR) and await _die(made, case.point, start=True)
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
    """Restart the server with the order: some effects happen at the start, and then not for minutes."""
    (server,) = made.servers
    server.signal(9)
    await server.dead()
    return await _die(made, msgspec.structs.replace(point, nth=1), start=True)


async def _die(made: Fleet, point: Point, *, start: bool = False) -> bool:
    """Order the kill and queue jobs until it happens; False if it does not."""
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
    environment: Environment, todo: Iterable[Case], *, side_by_side: int, minutes: float = math.inf
) -> AsyncIterator[Outcome]:
    """Yield outcomes from that many fleets; after `minutes` no new case is started."""
    waiting = deque(todo)
    done: asyncio.Queue[Outcome | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    until = loop.time() + 60.0 * minutes

    async def work(number: int) -> None:
        while waiting and loop.time() < until:
            # A failed fleet is not used again: its leftovers would affect the next case.
            async with environment.fleet(f"{number}_{len(waiting)}") as made:
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
