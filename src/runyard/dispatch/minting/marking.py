"""Labels Pods with the account of their job and, unless the job is trusted, as untrusted.

A Pod is labelled when its runner is armed, when its runner gets another job from the matcher, and when GitHub reports
that its runner executes a job that it was not meant for: GitHub gives a runner any queued job with the same labels. The
slot records which job the labels are about, so whatever was not written (a crash, an API that did not answer) is found
and written later, by any replica.

Invariants:
- Both labels are written in one request, so that no host sees an account without the mark.
- A label is never removed (`plans.marks`).
- The slot is read after the labels were written: if its job has changed meanwhile, they are decided again.
"""

import asyncio

from runyard.db.contract import DatabaseError, Row, Statement, Tx
from runyard.dispatch.deps import Deps
from runyard.dispatch.minting.trust import JobTrust, Origin
from runyard.dispatch.plans.marks import Mark, labels_for, mark_after
from runyard.dispatch.store import SQL
from runyard.http.errors import TransportError
from runyard.kube.errors import KubeError, NotFound
from runyard.kube.kinds import PODS

_CHANGES = 3  # of a Pod's job while its labels are written
_PARALLEL = 8


class Marker:
    """Writes the labels of Pods that have a job."""

    def __init__(self, deps: Deps, *, trust: JobTrust) -> None:
        self._kube = deps.kube
        self._database = deps.database
        self._log = deps.log
        self._settings = deps.settings
        self._trust = trust
        self._last = ""  # the uid that the last step ended with

    async def step(self) -> None:
        """Label Pods whose labels are not about their job, a limited number at a time."""
        found = await self._database.transact(self._due, name="marks due")
        gate = asyncio.Semaphore(_PARALLEL)
        self._last = found[-1] if len(found) == self._settings.recover_limit else ""

        async def one(uid: str) -> None:
            async with gate:
                await self.mark(uid)

        async with asyncio.TaskGroup() as group:
            for uid in found:
                group.create_task(one(uid))

    async def mark(self, pod_uid: str) -> None:
        """Label a Pod for the job that it runs or waits for. Errors of dependencies are logged, not raised."""
        try:
            for _ in range(_CHANGES):
                rows = await self._database.transact(
                    lambda tx: tx.read((SQL.mark_of_pod, {"pod_uid": pod_uid})), name="mark"
                )
                if not rows[0] or await self._mark_for(rows[0][0]):
                    return
        except DatabaseError as error:
            self._log.warning("labels of the job not recorded", pod_uid=pod_uid, error=str(error))

    async def _due(self, tx: Tx) -> list[str]:
        asked = {
            "grace": self._settings.marks_grace,
            "after": self._last,
            "limit": self._settings.recover_limit,
        }
        (rows,) = await tx.read((SQL.marks_due, asked))
        return [row["pod_uid"] for row in rows]

    async def _mark_for(self, job: Row) -> bool:
        """Label a Pod for this job; False if the Pod has another job by now."""
        origin = await self._trust.of(job)
        before = Mark(account_id=job["marked_account"], untrusted=job["marked_untrusted"])
        after = mark_after(before, account_id=origin.account_id, trust=origin.trust)
        labels = labels_for(before, after)
        written = not labels or await self._write(job, labels)
        return await self._record(job, origin, after if written else None)

    async def _write(self, job: Row, labels: dict[str, str]) -> bool:
        """Patch the Pod; False if its labels may not have been written."""
        try:
            await self._kube.patch(
                PODS,
                job["pod_name"],
                {"metadata": {"labels": labels}},
                namespace=self._settings.namespace,
                uid=job["pod_uid"],
            )
        except NotFound:
            return True  # that Pod is gone
        except (KubeError, TransportError) as error:
            self._log.warning(
                "labels of the job not written; they are tried again",
                pod=job["pod_name"],
                job=job["job_id"],
                error=str(error),
            )
            return False
        return True

    async def _record(self, job: Row, origin: Origin, mark: Mark | None) -> bool:
        """Store what was read and written. Nothing here waits for the disk: what a crash loses is done again."""
        writes: list[Statement] = [(SQL.commit_later, {})]
        job_id = job["job_id"]
        if origin.account_id and not job["account_id"]:
            account = {"tenant": job["tenant"], "account_id": origin.account_id}
            writes.append((SQL.tenant_account_record, account))
        if origin.trust.value != job["trust"]:
            trust = {"job_id": job_id, "trust": origin.trust.value, "before": job["trust"]}
            writes.append((SQL.job_trust_record, trust))
        if mark is not None:
            marked = {"pod_uid": job["pod_uid"], "job_id": job_id, "account_id": mark.account_id}
            writes.append((SQL.mark_record, {**marked, "untrusted": mark.untrusted}))

        async def work(tx: Tx) -> list[list[Row]]:
            return await tx.finish(*writes, alone=True)

        rows = (await self._database.transact(work, name="mark recorded"))[-1]
        return mark is None or not rows or rows[0]["job_id"] in (job_id, None)
