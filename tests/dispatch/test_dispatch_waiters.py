"""A poll takes the slot that this replica has just armed from memory, and every other slot from the database."""

from runyard.dispatch.machine.values import Slot, SlotState
from runyard.dispatch.waiters import Waiters

UID = "uid-1"
ARMED = Slot(pod_uid=UID, pod_name="mac-1", pool="mac", state=SlotState.ARMED)


def test_an_armed_slot_wakes_the_poll_and_is_taken_once() -> None:
    waiters = Waiters()
    with waiters.registered(UID) as wakeup:
        waiters.mark_idle(UID, "mac")
        waiters.wake(UID, armed=ARMED)
        assert wakeup.is_set() and not waiters.is_idle(UID)
        assert waiters.armed("uid-2") is None
        assert waiters.armed(UID) is ARMED
        assert waiters.armed(UID) is None


def test_of_two_polls_of_a_pod_the_second_reads_the_database() -> None:
    waiters = Waiters()
    with waiters.registered(UID) as first, waiters.registered(UID) as second:
        waiters.wake(UID, armed=ARMED)
        assert first.is_set() and second.is_set()
        assert [waiters.armed(UID), waiters.armed(UID)] == [ARMED, None]


def test_an_armed_slot_is_kept_until_the_last_poll_of_the_pod_ends() -> None:
    waiters = Waiters()
    with waiters.registered(UID):
        with waiters.registered(UID):
            waiters.wake(UID, armed=ARMED)
        assert waiters.armed(UID) is ARMED, "another poll of the Pod still waits"
        waiters.wake(UID, armed=ARMED)
    assert waiters.armed(UID) is None
    with waiters.registered(UID):
        assert waiters.armed(UID) is None, "a later poll reads the database"


def test_an_armed_slot_is_not_kept_when_no_poll_waits() -> None:
    waiters = Waiters()
    waiters.wake(UID, armed=ARMED)
    with waiters.registered(UID) as wakeup:
        assert not wakeup.is_set()
        assert waiters.armed(UID) is None


def test_a_poll_that_is_woken_for_another_change_reads_the_database() -> None:
    waiters = Waiters()
    with waiters.registered(UID) as wakeup:
        waiters.wake(UID)
        assert wakeup.is_set()
        assert waiters.armed(UID) is None
