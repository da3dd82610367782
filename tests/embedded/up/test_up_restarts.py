"""The record of restarts: bounded, kept over starts of the machine, and never a reason to stop."""

from pathlib import Path

import pytest

from runyard.clock import RealClock
from runyard.embedded.up import restarts as module
from runyard.embedded.up.restarts import RestartReader, RestartRecord, reason_of_exit
from runyard.embedded.up.supervisor import ComponentView
from runyard.telemetry.log import get_logger
from runyard.wire.reasons import Reason
from runyard.wire.restarts import Ended, Restart

KILLED = Ended.KILLED.because(signal=9)


class SteppingClock(RealClock):
    """A clock that is one second later at each look."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        self.at += 1.0
        return self.at


def record(path: Path) -> RestartRecord:
    return RestartRecord(path, clock=SteppingClock(), log=get_logger("test"))


def restart(of: RestartRecord, component: str, reason: Reason = KILLED) -> None:
    of.ended(component, reason)
    of.started(component)
    of.ready(component)


def test_the_first_start_of_a_component_is_not_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "restarts.json"
    first = record(path)
    first.started("server")
    first.ready("server")
    assert RestartReader(path)() == ()
    assert not path.exists()


def test_several_ends_before_it_is_ready_are_one_restart_with_the_first_cause(
    tmp_path: Path,
) -> None:
    path = tmp_path / "restarts.json"
    own = record(path)
    own.ended("server", KILLED)
    own.started("server")
    own.ended("server", Ended.EXITED.because(code=1))
    own.started("server")
    own.ready("server")
    assert RestartReader(path)() == (
        Restart(
            id=1,
            component="server",
            reason=Ended.KILLED.value,
            detail={"signal": 9},
            ended_at=1001.0,
            ready_at=1003.0,
            starts=2,
        ),
    )


def test_restarts_are_kept_over_starts_of_the_machine_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    path = tmp_path / "restarts.json"
    for component in ("a", "b", "c", "d"):
        restart(record(path), component)  # each time by another supervisor
    assert [(each.id, each.component) for each in RestartReader(path)()] == [
        (2, "b"),
        (3, "c"),
        (4, "d"),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_interruption_that_the_machine_did_not_end_is_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "restarts.json"
    record(path).ended("server", KILLED)
    after = record(path)
    after.started("server")
    after.ready("server")
    assert RestartReader(path)() == ()


@pytest.mark.parametrize("content", [b"[{", b"{}", b"\xff\xfe", b'[{"id": "x"}]'])
def test_a_damaged_record_stops_neither_the_machine_nor_the_dashboard(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "restarts.json"
    path.write_bytes(content)
    assert RestartReader(path)() == ()
    own = record(path)
    assert path.read_bytes() == b"[]"
    restart(own, "kube")
    assert [each.component for each in RestartReader(path)()] == ["kube"]


def test_a_record_that_cannot_be_written_is_written_by_the_next_restart(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    own = record(folder / "restarts.json")
    restart(own, "kube")
    folder.mkdir()
    restart(own, "server")
    read = RestartReader(folder / "restarts.json")
    assert [each.component for each in read()] == ["kube", "server"]
    (folder / "restarts.json").unlink()
    assert len(read()) == 2, "what was read before is shown"


def test_a_reader_sees_what_was_written_after_it_read(tmp_path: Path) -> None:
    path = tmp_path / "restarts.json"
    own, read = record(path), RestartReader(path)
    for count in (1, 2, 3):
        restart(own, "kube")
        assert len(read()) == len(read()) == count


def test_an_exit_has_a_code_for_its_cause() -> None:
    assert reason_of_exit(-9) == KILLED
    assert reason_of_exit(3) == Ended.EXITED.because(code=3)
    assert reason_of_exit(None) == Ended.NOT_STARTED.because()


def test_a_stop_of_the_machine_is_not_an_interruption(tmp_path: Path) -> None:
    path = tmp_path / "restarts.json"
    own = record(path)
    for state, code in (("starting", None), ("running", None), ("ended", 0), ("running", 0)):
        own.note(ComponentView(name="kube", state=state, code=code))  # type: ignore[arg-type] # a literal
    assert RestartReader(path)() == ()
    for state, code in (("waiting", -9), ("waiting", None), ("starting", None), ("running", None)):
        own.note(ComponentView(name="kube", state=state, code=code))  # type: ignore[arg-type] # a literal
    assert [(each.reason, each.starts) for each in RestartReader(path)()] == [(Ended.KILLED, 1)]
