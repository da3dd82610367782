"""What all steps share: the settings, the database, and facts that reach it."""

import msgspec

from runyard.sim.proof.rows import Database
from runyard.sim.proof.world import PODS, World

Step = tuple[str, World]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How large the world is, what may go wrong, and which effect is broken on purpose."""

    jobs: int = 2
    pods: int = 2
    limit: int = 2  # the tenant's budget, in runners
    disturbances: int = 0
    held: bool = False  # the first job awaits an approval
    lose_commits: bool = True
    workers: int = 2  # how many things the replicas have under way at once
    # Effects outside the machine, broken on purpose:
    skip_fence: bool = False  # believe that the runner is gone without asking GitHub
    operator_by_old_version: bool = False  # delete by an outdated view of the Pod
    answers_survive_failover: bool = False  # commit an answer that was asked before a loss
    unstamp_blindly: bool = False  # clear a stamp without a look at the slot
    stale_reads: bool = True  # "still queued" may be outdated when it is committed


class Scene:
    """The settings, the database, and the ways into it."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.db = database
        self.settings = settings
        self.rules = database.ctx.rules

    def fact(self, world: World, what: str, *, job: int, runner: int = -1) -> World:
        """GitHub's word about a job; a slot is found by the name of its runner."""
        pod = next((i for i in PODS if i == runner and _named(world, i)), None)
        return self.db.commit(world, what, pod=pod, job=job, runner=runner) or world

    def busy(self, world: World) -> bool:
        """Have the replicas their hands full?"""
        owned = sum(1 for task in world.tasks if task.kind != "late")
        return owned >= self.settings.workers


def _named(world: World, pod: int) -> bool:
    cell = world.lanes[pod].cell
    return cell is not None and cell.known
