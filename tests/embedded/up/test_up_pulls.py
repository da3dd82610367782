"""A pull of tens of gigabytes is seen to advance, says when it will end, and fills no log."""

import asyncio
import io
import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from runyard.cli.up_output import JsonLines, TerminalOutput, UpOutput
from runyard.embedded.up.layout import Layout
from runyard.embedded.up.pullrecord import PullState, pull_file, read_pulls, recorded
from runyard.embedded.up.pulls import Progress, PullView, joined_pulls, lasting
from runyard.kube.objects import Pod
from runyard.sim.driver import SimDriver
from runyard.vm.contract import ImageMissing, PullProgress, ResolvedImage, ignore_progress
from runyard.vm.tart.errors import failure

IMAGE, PINNED = "registry.example/macos:26", f"registry.example/macos@sha256:{'a' * 64}"
GB = 10**9


class Percentages(SimDriver):
    """A driver that knows only percentages of a pull, as tart does; each is looked at before the next one comes."""

    def __init__(self, look: list[PullState], file: Path) -> None:
        self.look, self.file = look, file
        self.passed_on: list[PullProgress] = []
        self.missing = False

    async def resolve(self, image: str) -> ResolvedImage:
        if self.missing:
            raise ImageMissing(f"image {image}: the registry has no such image")
        return ResolvedImage(reference=PINNED, bytes=24 * GB)

    async def pull(self, image: str, *, progress=ignore_progress) -> None:
        assert image == PINNED
        for percent in (0.0, 50.0):
            progress(PullProgress(percent=percent))
            self.look += msgspec.json.decode(self.file.read_bytes(), type=list[PullState])


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path)
    found.host("host-1").mkdir(parents=True)
    return found


def test_percentages_become_bytes_for_the_supervisor_and_for_the_agent(layout: Layout) -> None:
    seen: list[PullState] = []
    passed_on: list[PullProgress] = []
    file = pull_file(layout, "host-1")

    async def main() -> None:
        driver = recorded(Percentages(seen, file), file)
        await driver.pull((await driver.resolve(IMAGE)).reference, progress=passed_on.append)

    asyncio.run(main())
    assert [(each.image, each.percent, each.bytes_done) for each in seen] == [
        (IMAGE, 0.0, 0),
        (IMAGE, 50.0, 12 * GB),
    ]
    assert [each.bytes_total for each in passed_on] == [24 * GB, 24 * GB]
    (end,) = read_pulls(layout, "host-1")
    assert (end.image, end.state) == (IMAGE, "pulled")


def test_an_image_that_does_not_exist_is_reported_and_a_new_agent_begins_anew(
    layout: Layout,
) -> None:
    file = pull_file(layout, "host-1")
    driver = Percentages([], file)
    driver.missing = True
    with pytest.raises(ImageMissing):
        asyncio.run(recorded(driver, file).resolve(IMAGE))
    progress = Progress()
    states = {"host-1": read_pulls(layout, "host-1")}
    (line,) = progress.ended(states, 0.0)
    assert "no such image" in line and line.startswith("host-1 ")
    assert progress.ended(states, 9.0) == (), "once, not at each attempt"
    recorded(driver, file)
    assert read_pulls(layout, "host-1") == ()


def views_of(percents: list[int], *, every: float, total: int = 24 * GB) -> list[PullView]:
    """The views of a pull that has come so far at each look."""
    progress, found = Progress(), []
    for number, percent in enumerate(percents):
        done = total * percent // 100
        state = PullState(
            image=IMAGE,
            state="pulling",
            percent=percent,
            bytes_done=done,
            bytes_total=total,
        )
        found += progress.views({"host-1": (state,)}, number * every)
    return found


def test_the_end_of_a_pull_is_one_line_and_the_end_of_the_next_one_too() -> None:
    progress, lines = Progress(), []
    going = PullState(image=IMAGE, state="pulling", percent=5.0)
    there, failed = (
        PullState(image=IMAGE, state="pulled"),
        PullState(image=IMAGE, state="failed", error="no route"),
    )
    for now, state in enumerate((going, there, there, going, there, failed, going, failed, there)):
        states = {"host-1": (state,)}
        progress.views(states, float(now))
        lines.append(len(progress.ended(states, float(now))))
    assert lines == [0, 1, 0, 0, 1, 1, 0, 0, 1]


def test_an_error_of_several_lines_is_one_line_of_the_log() -> None:
    failed = PullState(image=IMAGE, state="failed", error="no route\nto host")
    (line,) = Progress().ended({"host-1": (failed,)}, 0.0)
    assert line.endswith("no route to host")


def test_the_line_of_a_failed_pull_says_twice_that_it_is_tried_again() -> None:
    offline = "Error: A server with the specified hostname could not be found."
    error = str(failure(f"pull of {IMAGE}", 1, offline))
    failed = PullState(image=IMAGE, state="failed", error=error)
    (line,) = Progress().ended({"host-1": (failed,)}, 0.0)
    assert line.count("again") == 1
    assert line.endswith("check the network and the registry")


def test_a_pull_that_begins_anew_has_no_rate_below_zero() -> None:
    """The agent was killed while it pulled, and the next one begins at nothing."""
    *_, anew, later = views_of([40, 80, 0, 10], every=24.0)
    assert (anew.rate, anew.seconds_left) == (0.0, None)
    assert (later.rate, later.seconds_left) == (100e6, 216.0)


def test_a_pull_says_how_much_how_fast_and_how_long() -> None:
    *_, last = views_of([0, 10, 20, 30, 40, 50], every=24.0)
    assert last.line() == (
        f"host-1 pulls {IMAGE}: 12.0 of 24.0 GB (50 %), 100 MB/s, about 2 min left"
    )


def test_what_was_downloaded_before_a_restart_does_not_count_as_speed() -> None:
    first, *_, last = views_of([80, 81, 82], every=24.0)
    assert (first.rate, first.seconds_left) == (0.0, None)
    assert last.rate == pytest.approx(10 * 10**6)


def test_a_pull_that_stands_still_does_not_promise_its_old_end() -> None:
    *_, last = views_of([10, 20, *[20] * 50], every=24.0)
    assert last.rate < 3 * 10**6


def test_a_pull_of_unknown_size_still_says_when_it_ends() -> None:
    *_, last = views_of([0, 25, 50], every=60.0, total=0)
    assert last.line() == f"host-1 pulls {IMAGE}: 50 %, about 2 min left"


def test_a_log_of_a_long_pull_stays_short_and_says_the_end() -> None:
    percents = [second * 100 // 2400 for second in range(2400)]  # 40 minutes
    file = io.StringIO()
    shown = UpOutput(Console(file=file, width=60))
    with shown:
        for view in views_of(percents, every=1.0):
            shown.pulls((view,))
    lines = file.getvalue().splitlines()
    assert 20 <= len(lines) <= 40
    assert lines[-1].endswith("left")


def terminal(file: io.StringIO) -> Console:
    """A terminal that can move its cursor, whatever the tests run on."""
    return Console(file=file, width=120, force_terminal=True, _environ={"TERM": "xterm"})


def test_a_terminal_has_one_bar_that_is_drawn_in_place() -> None:
    file = io.StringIO()
    shown = TerminalOutput(terminal(file))
    with shown:
        for view in views_of([0, 25, 50], every=60.0):
            shown.pulls((view,))
        shown.report("something else")
        shown.pulls(())
        shown.report("the end")
    text = file.getvalue()
    assert "━" in text and "12.0 of 24.0 GB (50 %)" in text
    end = text[text.rindex("the end") :]
    assert "━" not in end, "the bar is gone"
    assert text.count("pulls") == 1, "one line says what is pulled"


def test_a_bar_ends_with_the_command() -> None:
    file = io.StringIO()
    with TerminalOutput(terminal(file)) as shown:
        shown.pulls(tuple(views_of([10], every=1.0)))
    assert file.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in file.getvalue()


def test_json_has_the_numbers_of_a_pull() -> None:
    file = io.StringIO()
    shown = JsonLines(Console(file=file, width=60))
    with shown:
        shown.pulls(tuple(views_of([0, 50], every=120.0)[1:]))
    (event,) = [json.loads(line) for line in file.getvalue().splitlines()]
    assert (event["event"], event["bytes_done"], event["bytes_total"]) == ("pull", 12 * GB, 24 * GB)
    assert event["seconds_left"] == 120.0


def test_a_host_that_joined_is_shown_by_what_its_pods_say() -> None:
    waiting = {"reason": "Pulling", "message": "37 % of 52.1 GB"}
    raw = {
        "metadata": {"name": "p"},
        "spec": {"nodeName": "mini-2", "containers": [{"name": "runner", "image": IMAGE}]},
        "status": {"containerStatuses": [{"name": "runner", "state": {"waiting": waiting}}]},
    }
    pod = msgspec.convert(raw, Pod)
    (view,) = joined_pulls((pod,), ("host-1",))
    assert view.line() == f"mini-2 pulls {IMAGE}: 37 % of 52.1 GB"
    assert joined_pulls((pod,), ("mini-2",)) == (), "this machine's own hosts say it in numbers"
    now = [0.0]
    file = io.StringIO()
    shown = UpOutput(Console(file=file, width=60, get_time=lambda: now[0]))
    with shown:
        for second in range(600):
            now[0] = float(second)
            shown.pulls((msgspec.structs.replace(view, text=f"{second} %"),))
    assert len(file.getvalue().splitlines()) == 10


def test_a_host_that_joined_and_only_looks_up_a_tag_is_not_shown_as_a_pull() -> None:
    view = PullView(host="mini-2", image=IMAGE, text="it has begun", advances=False)
    assert lasting((), (view,)) == (), "it may only ask the registry"
    assert lasting((view,), (view,)) == (view,)
    later = msgspec.structs.replace(view, text="1 % of 52.1 GB", advances=True)
    assert lasting((), (later,)) == (later,)
    assert lasting((view,), ()) == ()
