"""What can happen next in a world: every step of the system, of its surroundings, and every fault.

A step is `(label, world, is_fault)`. The steps of the replicas go through `rows.Database`, that is
through the shipped transition function; what surrounds them (GitHub, Pods, operator, network) is
modelled here as freely as the real thing could behave: GitHub gives any queued job to any online
runner, webhooks arrive in any order, replicas crash between any two effects, the database may lose
its last commit.

A step that must never happen raises `Violation`.
"""

from collections.abc import Iterator

import msgspec

from runyard.dispatch.machine.events import (
    Adopt,
    Arm,
    Event,
    FenceAnswer,
    Fenced,
    JobEnded,
    JobQueued,
    JobStarted,
    JobStillQueued,
    MintAbandoned,
    MintFailed,
    Offer,
    PodGone,
    Polled,
    Retire,
)
from runyard.dispatch.machine.table import Question, due, question
from runyard.dispatch.machine.transition import Tell, answer_poll
from runyard.dispatch.machine.values import CLAIMS, Fence, JobState, SlotState
from runyard.sim.proof.rows import TENANT, Database, requeued, runner_name, to_slot, with_slot
from runyard.sim.proof.world import (
    JOBS,
    PODS,
    STALE,
    Guest,
    Hook,
    HubJob,
    Pod,
    Runner,
    Task,
    World,
    replace_at,
)

Step = tuple[str, World, bool]
ALIVE = (Guest.POLLING, Guest.ARMED, Guest.CONNECTED, Guest.OVER, Guest.HUNG)
put = msgspec.structs.replace


class Violation(Exception):
    """A promise is broken; the message says which."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How large the world is, and which effect is broken on purpose."""

    limit: int = 2  # the tenant's budget, in runners
    faults: int = 2
    lose_commits: bool = True
    skip_fence: bool = False  # believe that the runner is gone without asking GitHub


class Steps:
    """Lists the steps out of a world."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._db = database
        self._ctx = database.ctx
        self._settings = settings

    def out_of(self, world: World) -> Iterator[Step]:
        """Every step that can happen next."""
        for steps in (self._hub, self._guests, self._hooks, self._intake):
            for label, after in steps(world):
                yield label, after, False
        if any(world.up):
            for pod in PODS:
                for label, after in self._poll(world, pod):
                    yield label, after, False
        for replica in (0, 1):
            if not world.up[replica]:
                yield f"replica {replica} restarts", put(
                    world, up=replace_at(world.up, replica, value=True)
                ), False
                continue
            task = world.replicas[replica]
            steps = self._idle_replica(world, replica) if task is None else ()
            more = self._busy_replica(world, replica, task) if task is not None else ()
            for label, after in (*steps, *more):
                yield label, after, False
        if world.faults > 0:
            left = put(world, faults=world.faults - 1)
            for label, after in self._faults(left):
                yield f"FAULT {label}", after, True

    # ---------------------------------------------------------------- commits

    def _commit(self, world: World, pod: int | None, event: Event) -> World | None:
        rows = self._db.commit(world.rows, pod, event)
        if rows is None or rows == world.rows:
            return None
        late = world.returned_late
        for job in requeued(world.rows, rows):
            late = replace_at(late, job, value=world.hub[job].status != "queued")
        if isinstance(event, JobStillQueued):
            late = replace_at(late, event.job_id, value=False)
        if isinstance(event, Offer | Adopt) and world.returned_late[event.job_id]:
            raise Violation("a job was offered again although GitHub had it no longer queued")
        for job in JOBS:
            was, now = world.rows.jobs[job], rows.jobs[job]
            if was is not None and was.state is JobState.DONE and now != was:
                raise Violation("a job that is over came back")
        keeps = self._settings.lose_commits and world.faults > 0
        return put(
            world, rows=rows, before=world.rows if keeps else None, returned_late=late
        )

    def _fact(self, world: World, event: JobStarted | JobEnded | JobStillQueued | JobQueued) -> World:
        name = getattr(event, "runner_name", "")
        pod = next((i for i in PODS if self._known(world, i, name)), None)
        return self._commit(world, pod, event) or world

    def _known(self, world: World, pod: int, name: str) -> bool:
        cell = world.rows.slots[pod]
        return bool(name) and cell is not None and cell.known and runner_name(pod) == name

    # ---------------------------------------------------------------- surroundings

    def _hub(self, world: World) -> Iterator[tuple[str, World]]:
        for index, pod in enumerate(world.pods):
            if pod.runner is Runner.ONLINE and pod.guest in (Guest.CONNECTED, Guest.LOST):
                for job in JOBS:
                    if world.hub[job].status == "queued":
                        yield f"GitHub gives job {job} to runner {index}", self._assign(world, index, job)
            if pod.runner is Runner.BUSY and pod.job is not None:
                if pod.guest in (Guest.CONNECTED, Guest.LOST):
                    yield f"runner {index} finishes job {pod.job}", self._finish(world, index, pod.job)
                else:
                    yield f"GitHub fails job {pod.job} of a dead runner", self._finish(world, index, pod.job)
            ghost = pod.runner in (Runner.REGISTERED, Runner.ONLINE)
            cell = world.rows.slots[index]
            unspoken = cell is None or (not cell_claims(cell) and cell.fence is not Fence.DUE)
            fenced = cell is not None and cell.fence is Fence.DONE
            if ghost and (unspoken or fenced):
                yield f"ghost registration {index} is deleted", self._with_pod(
                    world, index, put(pod, runner=Runner.NONE)
                )

    def _assign(self, world: World, index: int, job: int) -> World:
        pod = put(world.pods[index], runner=Runner.BUSY, job=job)
        world = put(
            self._with_pod(world, index, pod),
            hub=replace_at(world.hub, job, HubJob("running", index)),
        )
        return put(world, hooks=_add(world.hooks, Hook("started", job, index)))

    def _finish(self, world: World, index: int, job: int) -> World:
        pod = world.pods[index]
        guest = {Guest.CONNECTED: Guest.OVER, Guest.LOST: Guest.ABSENT}.get(pod.guest, pod.guest)
        world = self._with_pod(world, index, put(pod, runner=Runner.NONE, job=None, guest=guest))
        return put(
            world,
            hub=replace_at(world.hub, job, HubJob("done", index)),
            hooks=_add(world.hooks, Hook("ended", job, index)),
        )

    def _guests(self, world: World) -> Iterator[tuple[str, World]]:
        for index, pod in enumerate(world.pods):
            if pod.guest is Guest.ABSENT and self._position_is_free(world, index):
                yield f"Pod {index} is created", self._fresh_pod(world, index)
            if pod.guest is Guest.ARMED:
                connects = pod.runner is Runner.REGISTERED
                guest = Guest.CONNECTED if connects else Guest.OVER
                runner = Runner.ONLINE if connects else pod.runner
                yield f"runner {index} connects", self._with_pod(
                    world, index, put(pod, guest=guest, runner=runner)
                )
            if pod.guest is Guest.CONNECTED and pod.runner is Runner.NONE:
                yield f"runner {index} finds itself deleted", self._with_pod(
                    world, index, put(pod, guest=Guest.OVER)
                )
            if pod.guest is Guest.LOST and pod.runner is Runner.NONE:
                yield f"lost machine {index} ends", self._with_pod(
                    world, index, put(pod, guest=Guest.ABSENT)
                )
            if pod.guest is Guest.OVER:
                yield f"Pod {index} is over and reaped", self._dead(world, index)
            if pod.terminating and pod.guest is not Guest.ABSENT:
                yield f"Pod {index} terminates", self._dead(world, index)
            if world.unheard[index] and not _could_speak(pod):
                yield f"time passes for slot {index}", put(
                    world, unheard=replace_at(world.unheard, index, value=False)
                )

    def _poll(self, world: World, index: int) -> Iterator[tuple[str, World]]:
        pod = world.pods[index]
        if pod.guest is not Guest.POLLING:
            return
        name = runner_name(index)
        event = Polled(pod_uid=name, pod_name=name, pool="pool")
        after = self._commit(world, index, event) or world
        after = put(after, unheard=replace_at(after.unheard, index, value=False))
        slot = to_slot(index, after.rows.slots[index])
        answer = answer_poll(slot) if slot is not None else None
        if answer is not None and answer.tell is Tell.RUN:
            after = self._with_pod(after, index, put(pod, guest=Guest.ARMED, jit=True))
            self._count_delivered(after)
        elif answer is not None and answer.tell is Tell.DRAIN:
            after = self._with_pod(after, index, put(pod, guest=Guest.OVER))
        yield f"Pod {index} polls", after

    def _count_delivered(self, world: World) -> None:
        holders = sum(1 for pod in world.pods if pod.jit and pod.guest is not Guest.ABSENT)
        lost = sum(1 for pod in world.pods if pod.jit and pod.guest is Guest.LOST)
        if holders - lost > self._settings.limit:
            raise Violation("more Pods may run a tenant's code than its budget allows")

    def _hooks(self, world: World) -> Iterator[tuple[str, World]]:
        for hook in dict.fromkeys(world.hooks):
            left = put(world, hooks=_remove(world.hooks, hook))
            yield f"webhook {hook.kind} of job {hook.job} arrives", self._deliver(left, hook)

    def _deliver(self, world: World, hook: Hook) -> World:
        name = runner_name(hook.runner) if hook.runner >= 0 else ""
        if hook.kind == "started":
            return self._fact(
                world, JobStarted(job_id=hook.job, tenant=TENANT, runner_name=name)
            )
        return self._fact(
            world,
            JobEnded(job_id=hook.job, tenant=TENANT, runner_name=name, conclusion="success"),
        )

    def _operator(self, world: World) -> Iterator[tuple[str, World]]:
        for index, pod in enumerate(world.pods):
            if pod.guest in ALIVE and not pod.stamped and not pod.terminating:
                if pod.jit and pod.guest is not Guest.OVER:
                    raise Violation("the operator deletes a Pod that runs or is about to run a job")
                yield f"operator deletes idle Pod {index}", self._with_pod(
                    world, index, put(pod, terminating=True)
                )

    def _intake(self, world: World) -> Iterator[tuple[str, World]]:
        for job in JOBS:
            if world.rows.jobs[job] is None:
                yield f"job {job} becomes known", self._fact(
                    world, JobQueued(job_id=job, tenant=TENANT)
                )

    # ---------------------------------------------------------------- replicas

    def _idle_replica(self, world: World, replica: int) -> Iterator[tuple[str, World]]:
        for index in PODS:
            yield from self._match(world, replica, index)
            yield from self._sweep(world, replica, index)
            yield from self._recover(world, index)
        for job in JOBS:
            if self._worth_reading(world, job):
                yield f"replica {replica} reads job {job}", self._read(world, replica, job)

    def _worth_reading(self, world: World, job: int) -> bool:
        """The reader looks at jobs that were given back, and at running ones now and then."""
        row = world.rows.jobs[job]
        if row is None:
            return False
        if row.state is JobState.QUEUED:
            return not row.verified
        return row.state is JobState.RUNNING and world.hub[job].status == "done"

    def _match(self, world: World, replica: int, index: int) -> Iterator[tuple[str, World]]:
        cell = world.rows.slots[index]
        if cell is None or cell.state not in (SlotState.IDLE, SlotState.ARMED):
            return
        for job in JOBS:
            if cell.state is SlotState.ARMED:
                adopted = self._commit(
                    world, index, Adopt(generation=cell.generation, job_id=job)
                )
                if adopted is not None:
                    yield f"job {job} is adopted by runner {index}", adopted
                continue
            offer = Offer(
                generation=cell.generation,
                job_id=job,
                tenant=TENANT,
                scope="",
                installation_id=0,
                vcpus=1,
                memory_gb=1,
                platform="",
                runner_name=runner_name(index),
            )
            offered = self._commit(world, index, offer)
            new = None if offered is None else offered.rows.slots[index]
            if offered is not None and new is not None:
                task = Task("mint", index, new.generation, "todo", "todo")
                yield f"replica {replica} offers job {job} to Pod {index}", self._begin(
                    offered, replica, task
                )

    def _sweep(self, world: World, replica: int, index: int) -> Iterator[tuple[str, World]]:
        cell, pod = world.rows.slots[index], world.pods[index]
        if cell is None:
            return
        if pod.guest in (Guest.ABSENT, Guest.LOST) and cell.state is not SlotState.CLOSED:
            if cell.state is not SlotState.IDLE or self._due(world, index):
                gone = self._commit(world, index, PodGone(why="404"))
                if gone is not None:
                    yield f"Pod {index} is proven gone", gone
        if not self._premature(world, index):
            yield from self._ask(world, replica, index)

    def _premature(self, world: World, index: int) -> bool:
        """Would it take unusual slowness for this deadline to pass before somebody moves?"""
        cell, pod = world.rows.slots[index], world.pods[index]
        if cell is None:
            return True
        if cell.state is SlotState.OFFERED:
            return any(
                task is not None and task.pod == index and task.generation == cell.generation
                for task in world.replicas
            )
        if cell.state is SlotState.ARMED:
            waits = any(job.status == "queued" for job in world.hub)
            return pod.guest in (Guest.POLLING, Guest.ARMED) or (
                pod.guest is Guest.CONNECTED and pod.runner is Runner.ONLINE and waits
            )
        if cell.state is SlotState.DRAINING:
            return pod.guest is Guest.OVER or (pod.guest is Guest.POLLING and cell.known)
        return False

    def _ask(self, world: World, replica: int, index: int) -> Iterator[tuple[str, World]]:
        """The sweeper's question about an overdue slot; GitHub's answer is committed later."""
        cell, pod = world.rows.slots[index], world.pods[index]
        slot = to_slot(index, cell)
        if cell is None or slot is None or not self._due(world, index):
            return
        asked = question(slot)
        harmful = asked in (Question.FENCE, Question.REAP)
        if world.unheard[index] and _could_speak(pod) and harmful and cell.state in CLAIMS:
            raise Violation("a healthy Pod is reaped because the service was away")
        busy_already = asked is Question.ASK_INTENDED or cell.state is SlotState.CLOSED
        if asked in (Question.FENCE, Question.ASK_INTENDED):
            answered, answer = self._fence(world, index)
            if answer[0] != "busy" or not busy_already:
                task = Task("answer", index, cell.generation, answer=answer)
                yield f"replica {replica} fences runner {index}", self._begin(
                    answered, replica, task
                )
        job = cell.executing if asked is Question.ASK_JOB else cell.intended
        unknown = asked is Question.ASK_INTENDED
        if job is not None and (
            unknown or (asked is Question.ASK_JOB and world.hub[job].status == "done")
        ):
            yield f"replica {replica} asks about job {job}", self._read(world, replica, job)
        if asked is Question.REAP and pod.guest in ALIVE:
            if pod.runner is Runner.BUSY:
                raise Violation("a Pod whose runner executes a job is deleted")
            yield f"Pod {index} is reaped", self._dead(world, index)

    def _due(self, world: World, index: int) -> bool:
        slot = to_slot(index, world.rows.slots[index])
        settled = not world.unheard[index]
        return slot is not None and due(
            slot, overdue=True, settled=settled, rules=self._ctx.rules
        )

    def _fence(self, world: World, index: int) -> tuple[World, tuple[str, int, int, bool]]:
        pod = world.pods[index]
        if self._settings.skip_fence:
            return world, ("fence", -1, -1, True)
        if pod.runner is Runner.BUSY:
            return world, ("busy", -1, -1, True)
        if pod.runner is Runner.NONE:
            return world, ("absent", -1, -1, True)
        return self._with_pod(world, index, put(pod, runner=Runner.NONE)), ("fence", -1, -1, True)

    def _read(self, world: World, replica: int, job: int) -> World:
        """Ask GitHub about a job. "Queued" may be outdated when it is committed; the rest stays true."""
        known = world.hub[job]
        runner = -1 if known.runner is None else known.runner
        task = Task("answer", -1, answer=(known.status, job, runner, False))
        if known.status == "queued":
            return self._begin(world, replica, task)
        return self._answered(world, task)

    def _recover(self, world: World, index: int) -> Iterator[tuple[str, World]]:
        cell, pod = world.rows.slots[index], world.pods[index]
        if not pod.stamped or pod.terminating or pod.guest not in (*ALIVE,) or pod.guest is Guest.OVER:
            return
        name = runner_name(index)
        event = Retire(
            pod_uid=name,
            pod_name=name,
            pool="pool",
            generation=None if cell is None else cell.generation,
            why="stamped without a claim",
        )
        retired = self._commit(world, index, event)
        if retired is not None:
            yield f"stamped Pod {index} without a claim is retired", retired

    def _begin(self, world: World, replica: int, task: Task | None) -> World:
        return put(world, replicas=replace_at(world.replicas, replica, task))

    def _busy_replica(
        self, world: World, replica: int, task: Task
    ) -> Iterator[tuple[str, World]]:
        if task.pod >= 0 and task.kind == "answer" and task.generation == STALE and self._fences():
            yield f"replica {replica} comes too late", self._begin(world, replica, None)
            return
        if task.kind == "mint":
            yield from self._minting(world, replica, task)
            return
        done = self._begin(world, replica, None)
        if task.kind == "drop":
            pod = world.pods[task.pod]
            if pod.runner in (Runner.REGISTERED, Runner.ONLINE):
                done = self._with_pod(done, task.pod, put(pod, runner=Runner.NONE))
            yield f"replica {replica} deletes its own registration", done
        elif task.kind == "unstamp":
            pod = world.pods[task.pod]
            cleared = self._with_pod(done, task.pod, put(pod, stamped=False))
            yield f"replica {replica} clears the stamp of Pod {task.pod}", self._begin(
                cleared, replica, put(task, kind="failed")
            )
        elif task.kind == "failed":
            event = MintFailed(generation=task.generation, why="refused")
            yield f"replica {replica} gives up the offer", self._commit(
                done, task.pod, event
            ) or done
        else:
            yield f"replica {replica} commits its answer", self._answered(done, task)

    def _fences(self) -> bool:
        return self._ctx.rules.generation_fences_writes

    def _answered(self, world: World, task: Task) -> World:
        kind, job, runner, scope_read = task.answer
        name = runner_name(runner) if runner >= 0 else ""
        if kind == "queued":
            return self._fact(world, JobStillQueued(job_id=job))
        if kind == "running":
            return self._fact(world, JobStarted(job_id=job, tenant=TENANT, runner_name=name))
        if kind == "done":
            return self._fact(
                world,
                JobEnded(job_id=job, tenant=TENANT, runner_name=name, conclusion="success"),
            )
        answers = {
            "fence": FenceAnswer.DELETED,
            "busy": FenceAnswer.BUSY,
            "absent": FenceAnswer.ABSENT,
        }
        event = Fenced(
            generation=task.generation, answer=answers[kind], scope_read=scope_read
        )
        return self._commit(world, task.pod, event) or world

    def _minting(self, world: World, replica: int, task: Task) -> Iterator[tuple[str, World]]:
        pod = world.pods[task.pod]
        if task.mint == "todo":
            yield f"replica {replica} mints runner {task.pod}", self._minted(world, replica, task)
        if task.stamp == "todo" and task.mint != "failed":
            ok = pod.guest in ALIVE and not pod.terminating
            stamped = self._with_pod(world, task.pod, put(pod, stamped=True)) if ok else world
            after = put(task, stamp="ok" if ok else "failed")
            yield f"replica {replica} stamps Pod {task.pod}", self._begin(stamped, replica, after)
        needs_stamp = self._ctx.rules.stamp_before_delivery
        if task.mint == "ok" and (task.stamp == "ok" or not needs_stamp):
            event = Arm(
                generation=task.generation, runner_id=1, jit=b"jit", stamped=task.stamp == "ok"
            )
            armed = self._commit(world, task.pod, event)
            follow = None if armed is not None else Task("drop", task.pod)
            yield f"replica {replica} arms Pod {task.pod}", self._begin(
                armed or world, replica, follow
            )
        elif task.mint == "failed":
            kind = "failed" if task.stamp == "todo" else "unstamp"
            yield f"replica {replica} learns that the mint was refused", self._begin(
                world, replica, Task(kind, task.pod, task.generation)
            )
        elif task.mint == "unknown" or task.stamp in ("failed", "unknown"):
            event = MintAbandoned(generation=task.generation, why="unclear")
            after = self._commit(world, task.pod, event) or world
            yield f"replica {replica} abandons the mint", self._begin(after, replica, None)

    def _minted(self, world: World, replica: int, task: Task) -> World:
        pod = world.pods[task.pod]
        if pod.runner is not Runner.NONE:  # the name is taken
            return self._begin(world, replica, put(task, mint="unknown"))
        registered = self._with_pod(world, task.pod, put(pod, runner=Runner.REGISTERED))
        return self._begin(registered, replica, put(task, mint="ok"))

    # ---------------------------------------------------------------- faults

    def _faults(self, world: World) -> Iterator[tuple[str, World]]:
        for replica in (0, 1):
            if world.up[replica]:
                yield from self._crash(world, replica)
            task = world.replicas[replica]
            if task is not None and task.kind == "mint":
                yield from self._mint_faults(world, replica, task)
            if world.up[replica] and task is None:
                for index in PODS:
                    if self._premature(world, index):
                        for label, after in self._ask(world, replica, index):
                            yield f"slowness: {label}", after
        for index, pod in enumerate(world.pods):
            if pod.guest in (Guest.POLLING, Guest.ARMED, Guest.CONNECTED):
                yield f"Pod {index} hangs", self._with_pod(world, index, _hang(pod))
                yield f"Pod {index} dies", self._dead(world, index)
                yield f"the node of Pod {index} is lost", self._lost(world, index)
            yield from self._blind_fence(world, index)
        for hook in dict.fromkeys(world.hooks):
            yield f"webhook {hook.kind} is lost", put(world, hooks=_remove(world.hooks, hook))
            yield f"webhook {hook.kind} comes twice", self._deliver(world, hook)
        if world.before is not None:
            yield "the database loses its last commit", put(world, rows=world.before, before=None)
        yield from self._operator(world)
        yield "an outage of both replicas", put(
            world,
            up=(False, False),
            replicas=(None, None),
            unheard=tuple(cell is not None for cell in world.rows.slots),
        )

    def _crash(self, world: World, replica: int) -> Iterator[tuple[str, World]]:
        down = put(
            self._begin(world, replica, None), up=replace_at(world.up, replica, value=False)
        )
        yield f"replica {replica} crashes", down
        task = world.replicas[replica]
        if task is not None and task.kind == "mint" and task.mint == "todo":
            late = self._begin(self._minted(down, replica, task), replica, None)
            yield f"replica {replica} crashes, its mint arrives all the same", late

    def _mint_faults(self, world: World, replica: int, task: Task) -> Iterator[tuple[str, World]]:
        if task.mint == "todo":
            refused = self._begin(world, replica, put(task, mint="failed"))
            yield f"the mint of runner {task.pod} is refused", refused
            lost = self._minted(world, replica, task)
            yield f"the answer to mint {task.pod} is lost", self._begin(
                lost, replica, put(task, mint="unknown")
            )
        if task.stamp == "todo" and task.mint != "failed":
            pod = world.pods[task.pod]
            if pod.guest in ALIVE and not pod.terminating:
                stamped = self._with_pod(world, task.pod, put(pod, stamped=True))
                yield f"the answer to stamp {task.pod} is lost", self._begin(
                    stamped, replica, put(task, stamp="unknown")
                )

    def _blind_fence(self, world: World, index: int) -> Iterator[tuple[str, World]]:
        """GitHub answers 404 for everything in a scope that we may not read just now."""
        cell = world.rows.slots[index]
        slot = to_slot(index, cell)
        if cell is None or slot is None or question(slot) is not Question.FENCE:
            return
        free = next((r for r in (0, 1) if world.up[r] and world.replicas[r] is None), None)
        if free is not None and self._due(world, index):
            task = Task("answer", index, cell.generation, answer=("absent", -1, -1, False))
            yield f"the scope of runner {index} cannot be read", self._begin(world, free, task)

    # ---------------------------------------------------------------- Pods

    def _with_pod(self, world: World, index: int, pod: Pod) -> World:
        return put(world, pods=replace_at(world.pods, index, pod))

    def _dead(self, world: World, index: int) -> World:
        """The Pod and whatever ran in it are gone; GitHub notices later."""
        pod = world.pods[index]
        runner = Runner.REGISTERED if pod.runner is Runner.ONLINE else pod.runner
        return self._with_pod(
            world, index, Pod(guest=Guest.ABSENT, jit=pod.jit, runner=runner, job=pod.job)
        )

    def _lost(self, world: World, index: int) -> World:
        pod = world.pods[index]
        if pod.guest is Guest.CONNECTED:
            return self._with_pod(world, index, put(pod, guest=Guest.LOST))
        return self._dead(world, index)

    def _position_is_free(self, world: World, index: int) -> bool:
        cell, pod = world.rows.slots[index], world.pods[index]
        settled = cell is None or (
            cell.state is SlotState.CLOSED and cell.fence is not Fence.DUE and cell.intended is None
        )
        named = any(task is not None and task.pod == index for task in world.replicas)
        spoken = any(hook.runner == index for hook in world.hooks)
        read = any(task is not None and task.answer[2] == index for task in world.replicas)
        return settled and pod.runner is Runner.NONE and not named and not spoken and not read

    def _fresh_pod(self, world: World, index: int) -> World:
        hub = tuple(put(job, runner=None) if job.runner == index else job for job in world.hub)
        before = world.before
        if before is not None and before.slots[index] is not None:
            before = None  # the loss of a commit about the old incarnation is another branch
        world = put(
            world,
            rows=with_slot(world.rows, index, None),
            before=before,
            hub=hub,
            unheard=replace_at(world.unheard, index, value=False),
        )
        return self._with_pod(world, index, Pod(guest=Guest.POLLING))


def cell_claims(cell: object) -> bool:
    """Does the row hold a reservation?"""
    return getattr(cell, "state", None) in CLAIMS


def at_rest(world: World) -> bool:
    """Nothing left: jobs over, no claim, no registration, no stamp, nothing under way."""
    rows = world.rows
    jobs = all(cell is not None and cell.state is JobState.DONE for cell in rows.jobs)
    hub = all(job.status == "done" for job in world.hub)
    slots = all(
        cell is None
        or (cell.state is SlotState.IDLE and pod.guest is Guest.POLLING)
        or (cell.state is SlotState.CLOSED and cell.fence is not Fence.DUE and cell.intended is None)
        for cell, pod in zip(rows.slots, world.pods, strict=True)
    )
    pods = all(
        pod.guest in (Guest.ABSENT, Guest.POLLING)
        and not pod.stamped
        and pod.runner is Runner.NONE
        for pod in world.pods
    )
    return (
        jobs and hub and slots and pods and not world.hooks and world.replicas == (None, None)
    )


def _could_speak(pod: Pod) -> bool:
    return pod.guest is Guest.POLLING and not pod.terminating


def _hang(pod: Pod) -> Pod:
    runner = Runner.REGISTERED if pod.runner is Runner.ONLINE else pod.runner
    return put(pod, guest=Guest.HUNG, runner=runner)


def _add(hooks: tuple[Hook, ...], hook: Hook) -> tuple[Hook, ...]:
    return tuple(sorted((*hooks, hook)))


def _remove(hooks: tuple[Hook, ...], hook: Hook) -> tuple[Hook, ...]:
    at = hooks.index(hook)
    return hooks[:at] + hooks[at + 1 :]
