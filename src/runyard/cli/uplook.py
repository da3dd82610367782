"""What `runyard up` shows: a live picture on a terminal, plain lines elsewhere, JSON for scripts.

The outcome line is always the last line of standard output, so that a script can read it. That nobody reads any more
(a closed pipe, a terminal that is gone) never stands in the way of what is being done.
"""

import contextlib
import os
import sys
from types import TracebackType
from typing import Self

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from runyard.embedded.up.demo.story import JobState, Outcome
from runyard.embedded.up.life import Audience
from runyard.embedded.up.machine import Machine
from runyard.embedded.up.supervisor import PartView

_MARKS = {"success": ("✓", "green"), "failure": ("✗", "red"), "cancelled": ("–", "yellow")}
_LINES = 8


class Look(Audience):
    """Plain lines with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = 0.0
        self._done: dict[str, str] = {}
        self._last = ""

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

    def tell(self, text: str) -> None:
        """Something happened."""
        self._print(f"{self._elapsed():6.1f} s  {text}")

    def _elapsed(self) -> float:
        return self._console.get_time() - self._began

    def _print(self, text: str) -> None:
        try:
            self._console.print(text, soft_wrap=True, highlight=False, markup=False)
        except OSError:
            _to_nowhere()

    def part(self, view: PartView) -> None:
        """A part changed its state."""
        if view.state == "waiting":
            self.tell(
                f"{view.name} died (code {view.code})" + (f"; {view.note}" if view.note else "")
            )
        elif view.state == "running" and view.starts > 1:
            self.tell(f"{view.name} is back (process {view.pid})")

    def up(self, machine: Machine) -> None:
        """Everything runs."""
        self.tell(f"up. Dashboard: {machine.urls.server}/")
        if machine.urls.public:
            self.tell(
                f"for others: {machine.urls.public}/ (its certificate's authority: {machine.layout.tls})"
            )
            self.tell(f"its token is in {machine.layout.secrets} (dashboard_token)")
        self.tell(
            f"kubectl --kubeconfig '{machine.layout.kubeconfig}' get nodes,pods,runnerpools,events"
        )
        self.tell(f"the addresses of all parts and their probes: {machine.layout.urls}")
        if machine.database.notice:
            self.tell(machine.database.notice)
        if not machine.options.demo:
            if machine.options.github is None:
                where = f" --data '{machine.layout.root}'"
                self.tell(f"a job to try it with: runyard practice{where} 'echo hello'")
            self.tell("Ctrl-C ends it; state is kept for the next start")

    def ended(self, seconds: float) -> None:
        """Everything has ended."""
        self.tell(f"ended in {seconds:.1f} s")

    def jobs(self, states: tuple[JobState, ...]) -> None:
        """How the jobs are."""
        for state in states:
            shown = state.conclusion or state.state
            if self._done.get(state.name) != shown and state.state == "completed":
                self.tell(f"job {state.name!r}: {shown} on {state.runner}")
            self._done[state.name] = shown

    def outcome(self, outcome: object) -> None:
        """The last line, printed when everything has ended."""
        assert isinstance(outcome, Outcome)
        for each in outcome.healed:
            self.tell(f"healed in {each.seconds:.1f} s: {each.what}")
        self._last = outcome.line()

    def failed(self, text: str) -> None:
        """It went wrong: on standard error, in the operator's words."""
        with contextlib.suppress(OSError):
            sys.stderr.write(f"runyard: {text}\n")


class LivePicture(Look):
    """Parts, jobs and the last lines, in place."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._parts: dict[str, PartView] = {}
        self._states: tuple[JobState, ...] = ()
        self._lines: list[str] = []
        self._live = Live(console=console, refresh_per_second=8, transient=False)

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

    def tell(self, text: str) -> None:
        """Among the last lines."""
        self._lines = [*self._lines, f"{self._elapsed():6.1f} s  {text}"][-_LINES:]
        self._draw()

    def part(self, view: PartView) -> None:
        """In the table of parts, and as a line when it died."""
        self._parts[view.name] = view
        super().part(view)
        self._draw()

    def jobs(self, states: tuple[JobState, ...]) -> None:
        """In the row of jobs."""
        self._states = states
        self._draw()

    def _draw(self) -> None:
        with contextlib.suppress(OSError):
            self._show()

    def _show(self) -> None:
        self._live.update(Group(self._table(), self._row(), Text("\n".join(self._lines))))

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for heading in ("part", "state", "process", "starts"):
            table.add_column(heading)
        for view in self._parts.values():
            style = "green" if view.state == "running" else "yellow"
            table.add_row(
                view.name, Text(view.state, style=style), str(view.pid or ""), str(view.starts)
            )
        return table

    def _row(self) -> Text:
        row = Text("jobs ")
        for state in self._states:
            if state.state == "completed":
                mark, style = _MARKS.get(state.conclusion, ("?", "yellow"))
            else:
                mark, style = ("▶", "cyan") if state.state == "in_progress" else ("·", "dim")
            row.append(mark + " ", style=style)
        return row


class JsonLines(Look):
    """One object a line: `event` says of what kind, `seconds` when, since the start."""

    def tell(self, text: str) -> None:
        """As it is."""
        self._say("told", text=text)

    def part(self, view: PartView) -> None:
        """Each change of its state."""
        self._say("part", **msgspec.to_builtins(view))

    def up(self, machine: Machine) -> None:
        """With every address."""
        self._say(
            "up",
            data=str(machine.layout.root),
            kubeconfig=str(machine.layout.kubeconfig),
            urls=machine.urls.by_part(),
            notice=machine.database.notice,
        )

    def ended(self, seconds: float) -> None:
        """With the time that it took."""
        self._say("ended", took=round(seconds, 3))

    def jobs(self, states: tuple[JobState, ...]) -> None:
        """Each change of a job."""
        for state in states:
            if self._done.get(state.name) != state.state:
                self._say("job", **msgspec.to_builtins(state))
            self._done[state.name] = state.state

    def outcome(self, outcome: object) -> None:
        """The last line, here too."""
        self._last = self._line("outcome", **msgspec.to_builtins(outcome))

    def _say(self, event: str, **more: object) -> None:
        self._print(self._line(event, **more))

    def _line(self, event: str, **more: object) -> str:
        said = {"event": event, "seconds": round(self._elapsed(), 3), **more}
        return msgspec.json.encode(said).decode()


class _Unread(Console):
    """A console that is silent once nobody reads; as it comes, it would end the process instead."""

    def on_broken_pipe(self) -> None:
        """Go on without a word."""
        self.quiet = True
        _to_nowhere()


def _to_nowhere() -> None:
    """Nobody reads: nothing is worth another try, nor a complaint when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def look(*, plain: bool, demo: bool, as_json: bool = False) -> Look:
    """A live picture where there is a terminal, lines elsewhere, objects if asked for."""
    console = _Unread()
    if as_json:
        return JsonLines(console)
    live = demo and console.is_terminal and not plain
    return LivePicture(console) if live else Look(console)
