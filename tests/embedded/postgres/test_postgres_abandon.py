"""An abandoned start and an urgent stop end soon and leave nothing behind."""

import threading
from pathlib import Path

import psycopg
import pytest

from runyard.embedded.lock import DirectoryLock
from runyard.embedded.postgres.errors import Abandoned, EmbeddedPostgresError
from runyard.embedded.postgres.server import EmbeddedPostgres

PATIENCE = 60.0


class Starting:
    """A start in a thread, and its result."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.error: BaseException | None = None
        self._server = server
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._server.start()
        except EmbeddedPostgresError as error:
            self.error = error

    def ended(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it goes on"
        return self.error


def works(data: Path) -> None:
    with EmbeddedPostgres(data, durable=False) as conninfo, psycopg.connect(conninfo) as link:
        assert link.execute("SELECT 1").fetchone() == (1,)


def test_a_start_that_was_abandoned_before_it_began_starts_nothing(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "data", durable=False)
    server.abandon()
    with pytest.raises(Abandoned):
        server.start()
    assert not (tmp_path / "data" / "cluster").exists()
    works(tmp_path / "data")


def test_a_start_that_is_abandoned_on_its_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedPostgres(tmp_path / "data", durable=False)
    reached, go_on = threading.Event(), threading.Event()
    launch = server._launch

    def slowly(*arguments: object) -> None:
        reached.set()
        assert go_on.wait(PATIENCE)
        launch(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(server, "_launch", slowly)
    starting = Starting(server)
    assert reached.wait(PATIENCE)
    server.abandon()
    go_on.set()
    assert isinstance(starting.ended(), Abandoned)
    assert not server.running
    works(tmp_path / "data")


def test_a_start_that_waits_for_the_directory_can_be_abandoned(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    held = DirectoryLock(tmp_path / "data")
    held.acquire()
    (tmp_path / "data" / "lock").write_text(
        "999999999\n"
    )  # an owner that is gone, and left this behind
    server = EmbeddedPostgres(tmp_path / "data", durable=False)
    try:
        starting = Starting(server)
        server.abandon()
        assert isinstance(starting.ended(), Abandoned)
    finally:
        held.release()


def test_an_orderly_stop_can_be_made_immediate(tmp_path: Path) -> None:
    """An orderly stop writes everything to disk first; `stop_immediately` ends the server without that."""
    server = EmbeddedPostgres(tmp_path / "data", durable=True)
    server.start()
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    server.stop_immediately()
    stopping.join(PATIENCE)
    assert not stopping.is_alive() and not server.running
    server.stop_immediately()  # once more does no harm
    works(tmp_path / "data")
