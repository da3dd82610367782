"""The scenario of the demo: twenty jobs, three kills and a leak, an image roll, and a count of what is left.

Everything is real: the jobs arrive as signed webhooks, run in processes of their own, and every number of the last
line is counted. Any deviation is an exception that names the component and its log.
"""

import asyncio
from collections.abc import Callable

import msgspec

from runyard.clock import Clock
from runyard.embedded.up.demo.events import DemoListener, FaultView, JobState, LeftOver
from runyard.embedded.up.demo.faults import Faults
from runyard.embedded.up.demo.jobs import DemoJob, jobs
from runyard.embedded.up.demo.leaks import leaks
from runyard.embedded.up.demo.observer import Observer
from runyard.embedded.up.practice import LABEL, REPOSITORY
from runyard.embedded.up.practice_client import PracticeClient
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError

CHECK_EVERY = 0.25
JOBS_WITHIN = 120.0
REST_WITHIN = 60.0
SETTLED_WITHIN = 30.0


class DemoFailed(Exception):
    """Something deviates from the script; the message says what, and which log to read."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the last line."""

    jobs: int
    succeeded: int
    failed_as_scripted: int
    leaked: int
    healed: tuple[FaultView, ...]
    findings: tuple[str, ...]  # of the job that probes the sandbox and the one that fills its disk

    def line(self) -> str:
        """The last line."""
        slowest = max((each.seconds or 0.0 for each in self.healed), default=0.0)
        return (
            f"demo: {self.jobs} jobs, {self.succeeded} succeeded, {self.failed_as_scripted} failed as"
            f" scripted, {self.leaked} leaked, {len(self.healed)} faults healed (max {slowest:.0f} s)"
        )


class DemoScenario:
    """Runs the scenario once."""

    def __init__(
        self,
        observer: Observer,
        *,
        clock: Clock,
        run: str,
        listener: DemoListener,
    ) -> None:
        self._observer = observer
        self._github: PracticeClient = observer.github
        self._clock = clock
        self._listener = listener
        self._script = jobs(run, observer.machine.layout.root / "hosts")
        self._ids: dict[int, DemoJob] = {}
        self._states: dict[int, JobState] = {}

    async def report(self) -> Outcome:
        """Runs from the first job to the last count."""
        faults = Faults(self._observer, clock=self._clock, listener=self._listener)
        await self._rest("the warm pool")
        self._listener.report(
            "the pool is warm; 20 jobs are sent as signed webhooks, with faults in between"
        )
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._watch())
            healed = [
                *(await self._first_half(faults)),
                *(await self._second_half(faults)),
            ]
            await self._done("the end of all jobs")
            watch.cancel()
        await self._rest("the pool after the last job")
        return await self._count(tuple(healed))

    async def _first_half(self, faults: Faults) -> tuple[FaultView, ...]:
        await self._queue(0, 7)
        await self._until(lambda: self._in_state("in_progress") >= 1, "the first running job")
        agent = await faults.kill_agent()

        async def more() -> None:
            await self._queue(7, 12)

        return agent, await faults.kill_server_between_stamp_and_commit(more)

    async def _second_half(self, faults: Faults) -> tuple[FaultView, ...]:
        # With no job waiting: a stamped Pod that still polls could get one, and recover by that.
        await self._done("the end of the first jobs")
        leak = await faults.leak_a_stamped_pod()
        await self._queue(12, 20)
        return leak, await faults.roll_the_image()

    async def _queue(self, first: int, end: int) -> None:
        for job in self._script[first:end]:
            number = await self._github.queue_job(
                REPOSITORY, labels=(LABEL,), script=job.script, name=job.name
            )
            self._ids[number] = job
            self._states[number] = JobState(name=job.name)

    async def _watch(self) -> None:
        while True:
            for view in await self._github.jobs():
                if view.id in self._ids:
                    self._states[view.id] = JobState(
                        name=self._ids[view.id].name,
                        state=view.status,
                        conclusion=view.conclusion or "",
                        runner=view.runner_name or "",
                    )
            self._listener.jobs(tuple(self._states.values()))
            await self._clock.sleep(CHECK_EVERY)

    def _in_state(self, state: str) -> int:
        return sum(each.state == state for each in self._states.values())

    async def _done(self, what: str) -> None:
        await self._until(lambda: self._in_state("completed") == len(self._ids), what)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        began = self._clock.monotonic()
        while not condition():
            if self._clock.monotonic() - began > JOBS_WITHIN:
                stuck = [
                    f"{s.name} ({s.state})" for s in self._states.values() if s.state != "completed"
                ]
                raise DemoFailed(
                    f"{what} was not reached within {JOBS_WITHIN:g} s; waiting: {', '.join(stuck)}."
                    f" See {self._observer.machine.layout.log('server')}"
                )
            await self._clock.sleep(CHECK_EVERY)

    async def _rest(self, what: str) -> None:
        began = self._clock.monotonic()
        while True:
            try:
                if await self._observer.at_rest():
                    return
            except (KubeError, TransportError) as error:
                self._listener.report(f"not ready yet: {error}")
            if self._clock.monotonic() - began > REST_WITHIN:
                raise DemoFailed(
                    f"{what} was not idle within {REST_WITHIN:g} s;"
                    f" see {self._observer.machine.layout.log('operator')}"
                )
            await self._clock.sleep(CHECK_EVERY)

    async def _count(self, healed: tuple[FaultView, ...]) -> Outcome:
        left = await self._left_over()
        self._listener.left_over(left)
        wrong = [
            f"{job.name}: {state.conclusion or state.state} instead of {job.conclusion}"
            for number, job in self._ids.items()
            if (state := self._states[number]).conclusion != job.conclusion
        ]
        outcome = Outcome(
            jobs=len(self._ids),
            succeeded=sum(each.conclusion == "success" for each in self._states.values()),
            failed_as_scripted=sum(
                job.conclusion == "failure" and self._states[number].conclusion == "failure"
                for number, job in self._ids.items()
            ),
            leaked=left.count,
            healed=healed,
            findings=await self._findings(),
        )
        if wrong or outcome.leaked:
            raise DemoFailed(
                f"{outcome.line()}. Not as scripted: {'; '.join(wrong) or 'what is left over, above'}."
                f" Logs: {self._observer.machine.layout.root / 'logs'}"
            )
        return outcome

    async def _left_over(self) -> LeftOver:
        """What is left after the time that recovery needs: GitHub removes a lost runner only after a while."""
        began = self._clock.monotonic()
        while True:
            left = LeftOver(kinds=leaks(await self._observer.snapshot()))
            if not left.count or self._clock.monotonic() - began > SETTLED_WITHIN:
                return left
            await self._clock.sleep(CHECK_EVERY)

    async def _findings(self) -> tuple[str, ...]:
        found = []
        for number, job in self._ids.items():
            if job.reports:
                log = await self._github.log(number)
                found += [
                    line
                    for line in log.splitlines()
                    if line.startswith(("neighbour:", "token:", "disk:"))
                ]
        return tuple(found)
