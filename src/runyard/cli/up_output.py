"""Output of `runyard up`: lines, with a live summary below them on a terminal; JSON for scripts.

A terminal and a pipe get the same lines: `LiveOutput` prints what `UpOutput` prints and repeats the facts that must
not scroll away (the dashboard's address, the faults, what is left over, jobs, components) in the same words below.

The outcome is always the last line of standard output, so that a script can read it. A closed pipe or terminal never
interrupts the command.
"""

import contextlib
import os
import shlex
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from runyard.cli.githubcheck import Line
from runyard.cli.servicelog import keep_short
from runyard.embedded.up.demo.events import DemoListener, Fault, FaultView, JobState, LeftOver
from runyard.embedded.up.demo.scenario import Outcome
from runyard.embedded.up.lifecycle import ProgressListener
from runyard.embedded.up.machine import Machine
from runyard.embedded.up.practice import POOL
from runyard.embedded.up.pulls import Lines, PullView
from runyard.embedded.up.supervisor import ComponentView

_MARKS = {"success": ("✓", "green"), "failure": ("✗", "red"), "cancelled": ("–", "yellow")}
_FRAMES = 8  # per second
_BAR = 30  # characters


class UpOutput(ProgressListener, DemoListener):
    """Prints plain lines with the seconds since the start."""

    def __init__(self, console: Console, *, service_log: Path | None = None) -> None:
        self._console = console
        self._service_log = service_log
        self._began = 0.0
        self._done: dict[str, str] = {}
        self._last = ""
        self.github_usable = True  # by the checks before the start
        self._due = Lines(console.get_time)

    def __enter__(self) -> Self:
        self._began = self._console.get_time()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._last:
            self._print(self._last)

    def report(self, text: str) -> None:
        """Print an event."""
        self._print(f"{self._elapsed():6.1f} s  {text}")

    def _elapsed(self) -> float:
        return self._console.get_time() - self._began

    def _print(self, text: str) -> None:
        if self._service_log is not None:
            keep_short(self._service_log)
        try:
            self._console.print(text, soft_wrap=True, highlight=False, markup=False)
        except OSError:
            _to_nowhere()

    def component(self, view: ComponentView) -> None:
        """A component changed its state."""
        if view.state == "waiting":
            self.report(
                f"{view.name} died (code {view.code})" + (f"; {view.note}" if view.note else "")
            )
        elif view.state == "running" and view.starts > 1:
            self.report(f"{view.name} is back (process {view.pid})")

    def pulls(self, views: tuple[PullView, ...]) -> None:
        """Print how far pulls are, at most about forty lines for each."""
        for view in self._due.due(views):
            self._pull(view)

    def _pull(self, view: PullView) -> None:
        self.report(view.line())

    def check(self, line: Line) -> None:
        """Print a check of GitHub that found something."""
        self.report(f"{line.verdict}: {line.sentence()}")

    def up(self, machine: Machine, login: str) -> None:
        """Print the URLs when everything runs; `login` opens the dashboard once, and is not for a log."""
        where = f" --data {_quoted(machine.layout.root)}"
        state = "up" if self.github_usable else "up, but GitHub cannot be used yet"
        if self._service_log is not None:
            self.report(f"{state}. Link to the dashboard: runyard dashboard{where}")
            return
        self.report(f"{state}. {dashboard_line(machine, login)}")
        self.report(
            f"this link works once, for 5 minutes; for another one: runyard dashboard{where}"
        )
        if machine.urls.public:
            self.report(
                f"from other machines: {machine.urls.public}/"
                f" (certificate authority: {machine.layout.tls / 'ca.crt'})"
            )
            self.report(f"the dashboard's token is in {machine.layout.dashboard_token}")
        if machine.urls.hosts:
            self.report(
                f"hosts join at {machine.urls.hosts}; to add one: runyard host token{where}"
            )
        root = shlex.quote(str(machine.layout.root))
        self.report(
            "for other commands, in another terminal:"
            f" export RUNYARD_SERVER={machine.urls.server} RUNYARD_DATA={root}"
        )
        self.report(
            f"kubectl --kubeconfig {_quoted(machine.layout.kubeconfig)} get nodes,pods,runnerpools,events"
        )
        self.report(f"URLs and probes of all components: {machine.layout.urls}")
        if machine.isolation and not machine.options.demo:  # a demo reports it itself
            self.report(f"isolation: {machine.isolation}")
        if machine.database.notice:
            self.report(machine.database.notice)
        if not machine.options.demo:
            if machine.waits_for:
                self.report(
                    f"jobs wait: the pool {POOL} is made for {machine.waits_for}, and this machine has no such host;"
                    " a line above says what to do"
                )
            elif machine.options.github is None and machine.options.driver == "tart":
                # Of a stand-in for tart that is not true, but of a Mac.
                self.report(
                    "jobs: VMs cannot reach the practice GitHub, which is on this machine's loopback; connect the"
                    " real one: Ctrl-C, runyard github connect, runyard up --github"
                )
            elif machine.options.github is None:
                self.report(f"try a job: runyard practice{where} 'echo hello'")
            for label in machine.labels:
                self.report(f"in a workflow: runs-on: {label}")
            self.report("Ctrl-C stops it; state is kept for the next start")

    def ended(self, seconds: float) -> None:
        """Print that everything has stopped."""
        self.report(f"ended in {seconds:.1f} s")

    def jobs(self, states: tuple[JobState, ...]) -> None:
        """Print the state of the jobs."""
        for state in states:
            shown = state.conclusion or state.state
            if self._done.get(state.name) != shown and state.state == "completed":
                self.report(f"job {state.name!r}: {shown} on {state.runner}")
            self._done[state.name] = shown

    def fault(self, view: FaultView) -> None:
        """Print a fault, or the recovery from it."""
        self.report(view.line())

    def left_over(self, left: LeftOver) -> None:
        """Print what is left over at the end."""
        self.report(left.line())

    def outcome(self, outcome: object) -> None:
        """Print the outcome as the last line."""
        assert isinstance(outcome, Outcome)
        self._last = outcome.line()

    def failed(self, text: str) -> None:
        """Print an error on standard error."""
        with contextlib.suppress(OSError):
            sys.stderr.write(f"runyard: {text}\n")


class LiveOutput(UpOutput):
    """Prints the same lines, and draws the facts that must stay on the screen below them."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._dashboard = ""
        self._components: dict[str, ComponentView] = {}
        self._states: tuple[JobState, ...] = ()
        self._faults: dict[Fault, FaultView] = {}
        self._left: LeftOver | None = None
        self._live = Live(console=console, refresh_per_second=_FRAMES, transient=False)

    def __enter__(self) -> Self:
        super().__enter__()
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        super().__exit__(kind, error, trace)

    def component(self, view: ComponentView) -> None:
        """Print a death and a return, and update the table of components."""
        self._components[view.name] = view
        super().component(view)
        self._draw()

    def up(self, machine: Machine, login: str) -> None:
        """Print the URLs, and keep the dashboard's."""
        self._dashboard = dashboard_line(machine, login)
        super().up(machine, login)
        self._draw()

    def jobs(self, states: tuple[JobState, ...]) -> None:
        """Print the jobs that ended, and update the row of jobs."""
        self._states = states
        super().jobs(states)
        self._draw()

    def fault(self, view: FaultView) -> None:
        """Print a fault or its recovery, and keep it."""
        self._faults[view.fault] = view
        super().fault(view)
        self._draw()

    def left_over(self, left: LeftOver) -> None:
        """Print what is left over, and keep it."""
        self._left = left
        super().left_over(left)
        self._draw()

    def ended(self, seconds: float) -> None:
        """Print that everything has stopped; the dashboard's address leads nowhere then."""
        self._dashboard = ""
        super().ended(seconds)
        self._draw()

    def _draw(self) -> None:
        with contextlib.suppress(OSError):
            line = Rule(style="dim")
            self._live.update(Group(line, *self._facts(), self._row(), self._table()))

    def _facts(self) -> list[Text]:
        """What must not scroll away, in the words of the lines above."""
        found = [_fact(self._dashboard, "bold")] if self._dashboard else []
        for view in self._faults.values():
            found.append(_fact(view.line(), "yellow" if view.seconds is None else "green"))
        if self._left is not None:
            found.append(_fact(self._left.line(), "red" if self._left.count else "green"))
        return found

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for heading in ("component", "state", "process", "starts"):
            table.add_column(heading)
        for view in self._components.values():
            style = "green" if view.state == "running" else "yellow"
            table.add_row(
                view.name, Text(view.state, style=style), str(view.pid or ""), str(view.starts)
            )
        return table

    def _row(self) -> Text:
        row = _fact("jobs ", "")
        for state in self._states:
            if state.state == "completed":
                mark, style = _MARKS.get(state.conclusion, ("?", "yellow"))
            else:
                mark, style = ("▶", "cyan") if state.state == "in_progress" else ("·", "dim")
            row.append(mark + " ", style=style)
        return row


class TerminalOutput(UpOutput):
    """Prints the same lines, and a bar below them for each image that is being pulled."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None
        self._named: frozenset[tuple[str, str]] = frozenset()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.pulls(())
        super().__exit__(kind, error, trace)

    def pulls(self, views: tuple[PullView, ...]) -> None:
        """Draw the bars anew, and remove them when nothing is pulled."""
        with contextlib.suppress(OSError):
            for view in views:
                if (view.host, view.image) not in self._named:
                    self.report(f"{view.host} pulls {view.image}")
            self._named = frozenset((view.host, view.image) for view in views)
            if views and self._live is None:
                self._live = Live(console=self._console, refresh_per_second=2, transient=True)
                self._live.start()
            if self._live is not None:
                self._live.update(pull_bars(views), refresh=True)
            if not views and self._live is not None:
                self._live.stop()
                self._live = None

    def ended(self, seconds: float) -> None:
        """Print that everything has stopped; a pull that was interrupted goes on at the next start."""
        self.pulls(())
        super().ended(seconds)


def _quoted(path: Path) -> str:
    """A path for a shell, always in quotes: whoever copies the line may put a path with a space in its place."""
    return "'" + str(path).replace("'", "'\"'\"'") + "'"


def _fact(text: str, style: str) -> Text:
    """A fact in several lines where the screen is narrow, also in a frame that is drawn with a line that is not."""
    return Text(text, style=style, no_wrap=False, overflow="fold")


def pull_bars(views: tuple[PullView, ...]) -> Table:
    """One line for each pull: a bar, the bytes, the rate and the time left."""
    table = Table.grid(padding=(0, 1))
    for view in views:
        if view.text:
            table.add_row(Text(view.host), Text(""), Text(view.text))
            continue
        bar = ProgressBar(total=100.0, completed=view.percent, width=_BAR)
        numbers = (view.amount(), view.speed(), view.left())
        table.add_row(Text(view.host), bar, Text("  ".join(filter(None, numbers))))
    return table


class JsonLines(UpOutput):
    """Prints one JSON object per line: `event` is its kind, `seconds` the time since the start."""

    def report(self, text: str) -> None:
        """Print an event."""
        self._print_event("message", text=text)

    def component(self, view: ComponentView) -> None:
        """Print a component's change of state."""
        self._print_event("component", **msgspec.to_builtins(view))

    def _pull(self, view: PullView) -> None:
        self._print_event("pull", **msgspec.to_builtins(view))

    def check(self, line: Line) -> None:
        """Print a check of GitHub that found something."""
        self._print_event("check", **msgspec.to_builtins(line))

    def up(self, machine: Machine, login: str) -> None:
        """Print all URLs; a script uses the file of the token instead of the link."""
        self._print_event(
            "up",
            data=str(machine.layout.root),
            kubeconfig=str(machine.layout.kubeconfig),
            urls=machine.urls.by_component(),
            token_file=str(machine.layout.dashboard_token),
            notice=machine.database.notice,
            isolation=machine.isolation,
            github_usable=self.github_usable,
            runs_on=machine.labels,
            waits_for=machine.waits_for,
        )

    def ended(self, seconds: float) -> None:
        """Print how long stopping took."""
        self._print_event("ended", took=round(seconds, 3))

    def jobs(self, states: tuple[JobState, ...]) -> None:
        """Print a job's change of state."""
        for state in states:
            if self._done.get(state.name) != state.state:
                self._print_event("job", **msgspec.to_builtins(state))
            self._done[state.name] = state.state

    def fault(self, view: FaultView) -> None:
        """Print a fault, or the recovery from it."""
        fields = msgspec.to_builtins(view)
        self._print_event("fault", took=fields.pop("seconds"), **fields)

    def left_over(self, left: LeftOver) -> None:
        """Print what is left over at the end."""
        self._print_event("left_over", **msgspec.to_builtins(left))

    def outcome(self, outcome: object) -> None:
        """Print the outcome as the last line."""
        self._last = self._line("outcome", **msgspec.to_builtins(outcome))

    def _print_event(self, event: str, **more: object) -> None:
        self._print(self._line(event, **more))

    def _line(self, event: str, **more: object) -> str:
        said = {"event": event, "seconds": round(self._elapsed(), 3), **more}
        return msgspec.json.encode(said).decode()


def dashboard_line(machine: Machine, login: str) -> str:
    """The link that opens the dashboard; its address if there is none."""
    return f"Dashboard: {login or machine.urls.server + '/'}"


class _QuietConsole(Console):
    """A console that goes silent when its output is closed; rich's own would end the process."""

    def on_broken_pipe(self) -> None:
        """Continue without output."""
        self.quiet = True
        _to_nowhere()


def _to_nowhere() -> None:
    """Redirect output to /dev/null: no further write fails, also not when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def up_output(
    *, plain: bool, demo: bool, as_json: bool = False, service_log: Path | None = None
) -> UpOutput:
    """A live screen for a demo and bars for pulls on a terminal, lines elsewhere, JSON if requested."""
    console = _QuietConsole()
    if as_json:
        return JsonLines(console, service_log=service_log)
    if plain or service_log is not None or not console.is_terminal:
        return UpOutput(console, service_log=service_log)
    return LiveOutput(console) if demo else TerminalOutput(console)
