"""Tests pulls: shared by their callers, bounded by their progress, ended with INT, safe to cancel.

A small script stands for `tart pull`; it writes to a FIFO that it holds, which proves when it is gone.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.proc_harness import SLEEP, Witness, witness
from tests.test_proclines import Ticking

from runyard.clock import RealClock
from runyard.vm.contract import (
    DriverFailed,
    ImageMissing,
    NoSpace,
    PullProgress,
    Stalled,
    Unauthorized,
)
from runyard.vm.oci.registry import Download
from runyard.vm.tart.commands import Tart
from runyard.vm.tart.pulling import Pulls
from runyard.vm.tart.settings import Settings

__all__ = ["witness"]

IMAGE = "registry.test:5000/runner@sha256:" + "a" * 64
SECOND = "registry.test:5000/other@sha256:" + "b" * 64
ELSEWHERE = "else.test/runner@sha256:" + "c" * 64


class Host:
    """A host whose tart is a script."""

    def __init__(
        self,
        tmp_path: Path,
        witness: Witness,
        script: str,
        *,
        clock: RealClock | None = None,
        **settings: Any,
    ) -> None:
        program = tmp_path / "tart"
        program.write_text(f'#!/bin/sh\nexec 9>"$WITNESS"; echo "$@" >&9\n{script}\n')
        program.chmod(0o755)
        self.home = tmp_path / "home"
        (self.home / "tmp").mkdir(parents=True)
        chosen = Settings(
            **{"binary": str(program), "home": self.home, "pull_ending": 0.2, **settings}
        )
        tart = Tart(chosen, clock or RealClock(), witness.environment())
        self.present = False
        self.bytes = 0
        self.insecure = False
        self.pulls = Pulls(tart, self._is_present, self._look_up)
        self.seen: list[float] = []
        self.reports: dict[str, list[PullProgress]] = {}

    async def _is_present(self, image: str) -> bool:
        return self.present

    async def _look_up(self, image: str) -> Download:
        return Download(bytes=self.bytes, insecure=self.insecure)

    def grow(self, image: str, number: int) -> None:
        """What tart does with the folder in which it collects an image."""
        folder = self.home / "tmp" / hashlib.md5(image.encode(), usedforsecurity=False).hexdigest()
        folder.mkdir(exist_ok=True)
        (folder / str(number)).write_bytes(b"x" * 9000)

    async def pull_until_it_stalls(self, image: str) -> str:
        """Pull, and return the reason of its end."""
        reports = self.reports.setdefault(image, [])
        with pytest.raises(Stalled) as found:
            await self.pulls.pull(image, reports.append)
        return str(found.value)

    def note(self, progress: PullProgress) -> None:
        self.seen.append(progress.percent)

    async def pull(self) -> None:
        await self.pulls.pull(IMAGE, self.note)


@pytest.fixture
def host(tmp_path: Path, witness: Witness) -> Callable[..., Host]:
    return lambda script, **settings: Host(tmp_path, witness, script, **settings)


def do(scenario: Coroutine[Any, Any, object]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(bounded())


def test_percentages_are_passed_on(host: Callable[..., Host], witness: Witness) -> None:
    pulling = host("echo pulling disk; printf '0%%\\r7%%\\r'; echo 100%")
    do(pulling.pull())
    assert pulling.seen == [0, 7, 100]
    assert witness.all_gone().decode() == f"pull {IMAGE}\n"


def test_an_image_that_is_there_is_not_pulled(host: Callable[..., Host], witness: Witness) -> None:
    pulling = host("exit 1")
    pulling.present = True
    do(pulling.pull())
    assert witness.all_gone() == b""


def test_a_local_registry_is_asked_without_tls(host: Callable[..., Host], witness: Witness) -> None:
    do(host("exit 0", insecure=frozenset({"registry.test:5000"})).pull())
    assert witness.all_gone().decode() == f"pull --insecure {IMAGE}\n"


def test_a_registry_that_was_found_to_speak_plain_http_is_pulled_from_so(
    host: Callable[..., Host], witness: Witness
) -> None:
    pulling = host("exit 0")
    pulling.insecure = True
    do(pulling.pull())
    assert witness.all_gone().decode() == f"pull --insecure {IMAGE}\n"


def test_a_pull_of_unknown_size_has_a_rate_by_what_is_on_the_disk(
    host: Callable[..., Host], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    pulling = host(f"echo 1%; while [ ! -e {go} ]; do sleep 0.02; done; echo 2%")
    reports: list[PullProgress] = []

    def report(progress: PullProgress) -> None:
        reports.append(progress)
        pulling.grow(IMAGE, 1)
        go.touch()

    do(pulling.pulls.pull(IMAGE, report))
    assert reports[0].bytes_done == 0 and reports[-1].bytes_done >= 9000
    assert reports[-1].bytes_total == 0


def test_callers_share_one_pull_and_a_later_one_learns_its_progress(
    host: Callable[..., Host], witness: Witness, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    pulling = host(f"echo 40%; while [ ! -e {go} ]; do sleep 0.02; done; echo 100%")
    late: list[float] = []

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pulling.pull())
            while pulling.seen != [40]:
                await asyncio.sleep(0.01)
            first = group.create_task(pulling.pulls.pull(IMAGE, lambda each: late.append(each.percent)))  # fmt: skip
            while not late:
                await asyncio.sleep(0.01)
            gone = group.create_task(pulling.pull())
            await asyncio.sleep(0)
            gone.cancel()  # one caller goes: the others' pull goes on
            go.touch()
            await first

    do(scenario())
    assert late == [40, 100]
    assert witness.all_gone().decode() == f"pull {IMAGE}\n"


def test_the_last_caller_ends_the_pull_and_it_can_be_repeated(
    host: Callable[..., Host], witness: Witness, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    pulling = host(
        f"trap 'echo INT >&9; exit 130' INT; echo 1%; while [ ! -e {go} ]; do sleep 0.02; done",
        pull_ending=60.0,
    )

    async def scenario() -> None:
        callers = [asyncio.create_task(pulling.pull()) for _ in range(2)]
        while len(pulling.seen) < 1:
            await asyncio.sleep(0.01)
        for caller in callers:
            caller.cancel()
        again = asyncio.create_task(pulling.pull())  # while the first is being ended
        for caller in callers:
            with pytest.raises(asyncio.CancelledError):
                await caller
        # Only then may the loop end, or it could end by itself before it was interrupted.
        assert [await witness.line() for _ in range(2)] == [f"pull {IMAGE}", "INT"]
        go.touch()
        await again

    do(scenario())
    assert witness.all_gone().decode().splitlines() == [f"pull {IMAGE}"]


HANGS = "trap '' INT TERM; (trap '' INT TERM; sleep 1000) &"


@pytest.mark.slow  # the time that tart gets for ending
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"echo 40%; {HANGS} wait", id="silent, with a grandchild"),
        pytest.param("while :; do echo 40%; sleep 0.02; done", id="repeats itself"),
    ],
)
def test_a_pull_that_stands_still_is_ended_with_a_reason(
    host: Callable[..., Host], witness: Witness, script: str
) -> None:
    pulling = host(script, pull_stall=0.4)
    with pytest.raises(Stalled, match=r"no progress for 0\.4 s at 40 %"):
        do(pulling.pull())
    witness.all_gone()


def test_a_slow_pull_is_reported_while_its_percentage_stays_the_same(
    host: Callable[..., Host],
) -> None:
    """The agent has a limit of its own, which only a report moves."""
    clock = Ticking(lambda tick: pulling.grow(IMAGE, tick) if tick <= 30 else None)
    pulling = host(f"echo 3%; {SLEEP}", clock=clock)
    do(pulling.pull_until_it_stalls(IMAGE))
    reports = pulling.reports[IMAGE]
    assert {each.percent for each in reports[-20:]} == {3}
    assert len(reports) >= 25
    assert clock.time >= 30 * 30, "it is ended only when the growth ends"


def test_a_pull_that_waits_for_the_one_before_it_is_reported_and_not_ended(
    host: Callable[..., Host],
) -> None:
    clock = Ticking(lambda tick: pulling.grow(IMAGE, tick) if tick <= 100 else None)
    pulling = host(
        f"case $2 in {IMAGE}) echo 5%;; *) echo waiting for lock...;; esac; {SLEEP}", clock=clock
    )

    async def scenario() -> None:
        ends = await asyncio.gather(
            pulling.pull_until_it_stalls(IMAGE), pulling.pull_until_it_stalls(SECOND)
        )
        assert clock.time > 900
        assert "at 5 %" in ends[0]
        assert "waited for another pull from registry.test:5000" in ends[1]
        assert len(pulling.reports[SECOND]) > 10

    do(scenario())


@pytest.mark.slow  # longer than the time without progress
def test_a_pull_is_ended_although_the_one_before_it_shows_new_percentages(
    host: Callable[..., Host],
) -> None:
    """Nothing grows on the disk until the one before it is complete."""
    advances = "n=1; while [ $n -lt 50 ]; do echo $n%; n=$((n+1)); sleep 0.05; done"
    waits = "echo waiting for lock...; sleep 2.5; echo 100%"
    pulling = host(f"case $2 in {IMAGE}) {advances};; *) {waits};; esac", pull_stall=1.0)
    reports: list[PullProgress] = []

    async def scenario() -> None:
        await asyncio.gather(pulling.pull(), pulling.pulls.pull(SECOND, reports.append))
        assert len(reports) > 10  # callers have a deadline of their own

    do(scenario())


def test_a_pull_that_stands_still_is_ended_while_another_one_advances(
    host: Callable[..., Host],
) -> None:
    clock = Ticking(lambda tick: pulling.grow(ELSEWHERE, tick) if tick <= 80 else None)
    pulling = host(f'echo "$2: started"; {SLEEP}', clock=clock)
    pulling.grow(IMAGE, 0)
    ended: dict[str, float] = {}

    async def scenario() -> None:
        async def pull(image: str) -> None:
            await pulling.pull_until_it_stalls(image)
            ended[image] = clock.time

        await asyncio.gather(pull(IMAGE), pull(ELSEWHERE))

    do(scenario())
    assert ended[IMAGE] < ended[ELSEWHERE] / 2
    assert pulling.reports[IMAGE] == []


def test_the_size_of_the_image_turns_percentages_into_bytes(host: Callable[..., Host]) -> None:
    pulling = host("echo 25%; echo 100%")
    pulling.bytes = 4000
    reports: list[PullProgress] = []
    do(pulling.pulls.pull(IMAGE, reports.append))
    assert reports == [
        PullProgress(percent=25, bytes_done=1000, bytes_total=4000),
        PullProgress(percent=100, bytes_done=4000, bytes_total=4000),
    ]


def test_a_pull_that_cannot_fit_is_not_begun(host: Callable[..., Host], witness: Witness) -> None:
    pulling = host("exit 0")
    pulling.bytes = 1 << 60
    with pytest.raises(NoSpace, match=r"downloads 1152921504\.6 GB .* GB are free"):
        do(pulling.pull())
    assert witness.all_gone() == b""


@pytest.mark.slow
def test_a_pull_that_grows_on_disk_goes_on_without_a_word(
    host: Callable[..., Host], tmp_path: Path
) -> None:
    pulling = host(
        'for n in 1 2 3 4 5 6 7 8 9; do head -c 20000 /dev/zero >"$TART_HOME/tmp/$n"; sleep 0.1; done',
        pull_stall=0.6,
    )
    do(pulling.pull())


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('Error: UnexpectedHTTPStatusCode(when: "pulling manifest", code: 404, details: "")', ImageMissing),
        ('Error: UnexpectedHTTPStatusCode(when: "pulling manifest", code: 403, details: "")', Unauthorized),
        ("Error: The file “disk.img” couldn’t be saved because there isn’t enough space.", NoSpace),
        ("Error: oh", DriverFailed),
    ],
)  # fmt: skip
def test_a_failed_pull_is_a_typed_error_for_every_caller(
    host: Callable[..., Host], message: str, kind: type[Exception]
) -> None:
    pulling = host(f"echo 3%; echo '{message}' >&2; exit 1")

    async def scenario() -> None:
        found = await asyncio.gather(pulling.pull(), pulling.pull(), return_exceptions=True)
        assert [type(each) for each in found] == [kind, kind]
        assert "pull of registry.test" in str(found[0])

    do(scenario())


def test_a_failed_pull_names_the_cause_and_not_what_tart_did_before(
    host: Callable[..., Host],
) -> None:
    pulling = host("echo pulling x...; echo pulling manifest...; echo Error: oh >&2; exit 1")

    async def scenario() -> None:
        with pytest.raises(DriverFailed) as raised:
            await pulling.pull()
        assert str(raised.value) == f"tart pull of {IMAGE} failed with 1: Error: oh"

    do(scenario())


@pytest.mark.slow  # as above
def test_no_process_is_left_when_the_pull_is_cancelled_twice(
    host: Callable[..., Host], witness: Witness
) -> None:
    pulling = host(f"echo 1%; {HANGS} wait")

    async def scenario() -> None:
        caller = asyncio.create_task(pulling.pull())
        while not pulling.seen:
            await asyncio.sleep(0.01)
        for _ in range(3):
            caller.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert witness.all_gone()

    do(scenario())
