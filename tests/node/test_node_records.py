"""Tests the records on disk: torn writes, invalid content and crashes never stop the agent."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.node.pod_model import UID, record

from runyard.node.plans.values import Outcome, Phase, Record
from runyard.node.records import Ledger, Records


def test_the_next_agent_reads_the_written_records(tmp_path: Path) -> None:
    result = Outcome(exit_code=7, reason="Error", message="…", finished_at=12.5)
    written = record(phase=Phase.EXITED, started_at=1.25, result=result)
    Records(tmp_path / "deep" / "records", durable=True).load()
    Records(tmp_path / "deep" / "records").write(written)
    assert Records(tmp_path / "deep" / "records").load() == {written.uid: written}


def test_a_crash_between_write_and_rename_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(tmp_path)
    records.write(record())

    def crash(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            records.write(record(phase=Phase.STARTED))
    assert records.load() == {UID: record()}
    assert [path.name for path in tmp_path.iterdir()] == [f"{UID}.json"]


GARBAGE = {
    "empty": b"",
    "torn": msgspec.json.encode(record())[:40],
    "binary": b"\xff\xfe\x00\x01",
    "another type": b"[1, 2]",
    "unknown phase": msgspec.json.encode(record()).replace(b'"intended"', b'"sideways"'),
    "of another uid": msgspec.json.encode(record(uid="another-uid")),
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_an_unreadable_record_is_renamed_and_its_uid_is_suspect(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / f"{UID}.json").write_bytes(content)
    good = record(uid="good")
    Records(tmp_path).write(good)
    ledger = Ledger(Records(tmp_path))
    assert ledger.load() == (UID,)
    assert ledger.values() == (good,)
    assert ledger.suspect(UID) and not ledger.suspect("good")
    assert Ledger(Records(tmp_path)).load() == (UID,), "a suspect uid stays suspect after a restart"


def test_a_suspect_uid_is_forgotten_with_its_pod(tmp_path: Path) -> None:
    (tmp_path / f"{UID}.json").write_bytes(b"{")
    ledger = Ledger(Records(tmp_path))
    ledger.load()
    ledger.forget(UID)
    assert not ledger.suspect(UID)
    assert list(tmp_path.iterdir()) == []


def test_forgetting_twice_is_success(tmp_path: Path) -> None:
    records = Records(tmp_path, durable=False)
    records.write(record())
    records.forget(UID)
    records.forget(UID)
    assert records.load() == {}


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", ".", "a\0b", "x" * 65])
def test_a_uid_cannot_name_another_file(tmp_path: Path, uid: str) -> None:
    with pytest.raises(ValueError, match="not a Pod's uid"):
        Records(tmp_path).write(record(uid=uid))


def test_a_failed_write_does_not_change_the_records_in_memory(tmp_path: Path) -> None:
    ledger = Ledger(Records(tmp_path / "records", durable=False))
    ledger.load()
    ledger.save(record())
    with pytest.raises(ValueError, match="not a Pod's uid"):
        ledger.save(record(uid="../x"))
    (tmp_path / "records").rename(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="No such file"):
        ledger.save(record(phase=Phase.STARTED))
    assert ledger.values() == (record(),)


@given(content=st.binary(max_size=300))
def test_no_content_of_a_record_file_raises(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    directory = tmp_path_factory.mktemp("records")
    (directory / f"{UID}.json").write_bytes(content)
    assert all(isinstance(held, Record) for held in Records(directory).load().values())
