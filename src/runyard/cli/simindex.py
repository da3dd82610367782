"""The lists in `runyard sim --help`: faults, scenarios and the guards against them.

Importing the scenarios loads the whole fleet, which takes a second; a test compares these lists with them.
"""

from typing import NamedTuple


class Listed(NamedTuple):
    """A scenario as `--help` shows it."""

    name: str
    summary: str
    guards: tuple[str, ...] = ()
    long: bool = False


HOSTS, JOBS_PER_DAY = 6, 2000.0  # what a run has unless flags say otherwise
FAULTS = (
    "crash-server",
    "crash-operator",
    "crash-agent",
    "webhooks",
    "kube-outage",
    "github-outage",
    "database-outage",
    "hung-vm",
    "lost-node",
    "stalled-pull",
    "hung-driver",
    "growing-disks",
    "slow-network",
    "watch-loss",
    "server-deploy",
)
SCENARIOS = (
    Listed(
        "deploy-leaks-stamped-pods",
        "a deploy kills the servers between stamp and delivery, for the whole warm pool",
        ("deadline_offered", "orphaned_stamped_pods"),
    ),
    Listed(
        "roll-does-not-collapse-the-pool",
        "a new image of tens of gigabytes reaches every host at the same time",
        ("roll_cap",),
    ),
    Listed(
        "lost-node-runner-lives-on",
        "a host loses its connection to the cluster while its runner executes a job, and reconnects",
    ),
    Listed("webhooks-lost-for-an-hour", "no webhook arrives for an hour", ("loop_delivery_audit",)),
    Listed(
        "agent-crash-at-every-effect",
        "the agent is killed before and after each of its effects on one Pod",
    ),
    Listed(
        "server-crash-at-every-effect",
        "the server is killed before and after each of its effects for one job",
    ),
    Listed(
        "database-outage",
        "responses to commits are lost, then the database is unavailable for ten minutes",
    ),
    Listed("github-outage", "GitHub is unavailable for twenty minutes while runners are armed"),
    Listed(
        "webhooks-down-for-an-hour",
        "webhooks are dropped, duplicated and reordered, and refused for an hour",
        ("loop_delivery_audit",),
        long=True,
    ),
    Listed("no-address-for-webhooks", "no webhook can ever arrive", ("loop_delivery_pull",)),
    Listed(
        "job-code-asks-for-more",
        "a job uses its Pod's token to poll for another job, while another tenant's jobs wait",
        ("one_job_a_pod",),
    ),
    Listed(
        "reaper-meets-a-working-runner",
        "the slot of a busy runner is lost, so that its Pod looks leaked",
        ("busy_answer_counts",),
    ),
    Listed(
        "stamp-of-an-unknown-owner",
        "two Pods carry the stamp of an owner that no tenant matches; one of them executes a job",
        ("orphaned_stamped_pods", "busy_answer_counts"),
    ),
    Listed(
        "runner-takes-another-job",
        "GitHub assigns runners other jobs than the intended ones",
        ("requeue_displaced",),
    ),
    Listed(
        "another-jobs-end-frees-no-runner",
        "two runners execute each other's job, and a completed event arrives before both in_progress events",
        ("end_by_runner",),
    ),
    Listed(
        "claim-of-a-pod-that-vanished",
        "a Pod is force-deleted before its runner registers, and its stop is not reported",
        ("deadline_closed",),
    ),
    Listed(
        "webhooks-while-all-else-is-slow",
        "jobs are queued while Kubernetes is slow and GitHub's API is unavailable",
        ("webhooks_answered_first",),
    ),
    Listed(
        "stop-reports-lost", "every stop report of the operator is ignored", ("pods_against_slots",)
    ),
    Listed(
        "old-event-about-a-finished-job",
        "in_progress events of finished jobs are delivered again, as new deliveries",
        ("done_stays_done",),
    ),
    Listed(
        "runner-dies-before-it-registers",
        "a VM dies after it received its JIT configuration, before its runner registers",
        ("stop_reports_count", "deadline_closed"),
    ),
    Listed(
        "watchdog-and-job-at-once",
        "an idle runner gives up at the moment when GitHub assigns it a job",
        ("watchdog_yields",),
    ),
    Listed(
        "poll-loop-dies",
        "a guest's poll loop dies while its Pod keeps running",
        ("pods_against_slots",),
    ),
    Listed(
        "machine-that-never-ends",
        "jobs are completed, but their VMs never stop",
        ("deadline_draining",),
    ),
    Listed(
        "drain-waits-for-the-job",
        "a host is drained while one of its runners executes a job",
        ("drain_first",),
    ),
    Listed(
        "hosts-that-start-nothing",
        "every host is Ready, but no VM starts",
        ("loop_queue_gauges",),
    ),
    Listed(
        "head-of-the-queue-does-not-block",
        "the oldest job needs more than its tenant's remaining budget; the jobs behind it do not",
        ("step_aside",),
    ),
    Listed(
        "account-that-cannot-mint",
        "GitHub refuses every runner registration for one account with twenty queued jobs",
        ("exclude_failing",),
    ),
    Listed(
        "capped-tenant-asks-for-no-hosts",
        "a tenant with budget for one runner queues thirty jobs",
        ("dispatchable_only",),
    ),
    Listed(
        "flood-of-one-tenant",
        "one tenant queues two hundred jobs before the other tenants queue theirs",
        ("fair_turns",),
    ),
    Listed(
        "flood-of-ten-thousand-jobs",
        "one tenant queues ten thousand jobs before the other tenants queue theirs",
        long=True,
    ),
    Listed(
        "mints-of-one-account-fail",
        "GitHub answers 500 to every runner registration of one account with twenty queued jobs",
        ("exclude_failing",),
    ),
    Listed(
        "storm-of-unknown-mints",
        "GitHub answers 502 to every runner registration for a minute",
        ("exclude_failing",),
    ),
)
