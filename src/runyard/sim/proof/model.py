"""What all steps of the proof share: the settings, the database, and how events reach it."""

import msgspec

from runyard.sim.proof.rows import Database
from runyard.sim.proof.state import PODS, State

Step = tuple[str, State]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the model, what may go wrong, and which effect is broken on purpose."""

    jobs: int = 2
    pods: int = 2
    limit: int = 2  # the tenant's budget, in runners
    disturbances: int = 0
    held: bool = False  # the first job awaits an approval
    lose_commits: bool = True
    workers: int = 2  # how many tasks the replicas have under way at once
    # Effects outside the machine, broken on purpose:
    skip_fence: bool = False  # assume that the runner is gone without asking GitHub
    operator_by_old_version: bool = False  # delete by an outdated view of the Pod
    answers_survive_failover: bool = False  # commit an answer that was asked before a loss
    unstamp_blindly: bool = False  # clear a stamp without reading the slot
    warm_blindly: bool = False  # clear the stamp of a fenced Pod without reading its slot
    budget_freed_early: bool = False  # a slot that drains counts against no budget
    stale_reads: bool = True  # "still queued" may be outdated when it is committed


class Model:
    """The settings and the database."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.db = database
        self.settings = settings
        self.rules = database.ctx.rules

    def fact(self, state: State, what: str, *, job: int, runner: int = -1) -> State:
        """Commits a fact from GitHub about a job; a slot is found by the name of its runner."""
        pod = next((i for i in PODS if i == runner and _named(state, i)), None)
        return self.db.commit(state, what, pod=pod, job=job, runner=runner) or state

    def busy(self, state: State) -> bool:
        """Whether the replicas have as many tasks under way as they can."""
        owned = sum(1 for task in state.tasks if task.kind != "late")
        return owned >= self.settings.workers


def _named(state: State, pod: int) -> bool:
    cell = state.lanes[pod].cell
    return cell is not None and cell.known
