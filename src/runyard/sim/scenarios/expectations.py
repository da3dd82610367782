"""The codes of what scenarios expect: a run that fails names the one that did not come true."""

from runyard.wire.reasons import Code


class Expectation(Code):
    """Something that a scenario waits for or checks."""

    WARM = "warm", "warm"
    AT_REST = "at-rest", "at rest"
    NO_SECOND_RUNNER = "no-second-runner", "a Pod that had a runner gets no other"
    ANSWERED_GONE = "answered-gone", "it is answered with 410"
    EXECUTED_ONCE = "executed-once", "executed once"
    SOME_WERE_DISPLACED = "some-were-displaced", "some were displaced"
    EACH_WAS_EXECUTED_ONCE = "each-was-executed-once", "each was executed once"
    LONG_ONE_SWAPPED = "long-one-swapped", "a long one runs where a short one was meant to"
    IT_RUNS = "it-runs", "it runs"
    THE_OTHERS_RUN = "the-others-run", "the others run"
    THE_JOB_ENDS_WELL = "the-job-ends-well", "the job ends well"
    ALL_RUN = "all-run", "all run"
    THE_SHORT_ONES_END = "the-short-ones-end", "the short ones end"
    THE_LONG_ONES_END_WELL = "the-long-ones-end-well", "the long ones end well"
    IT_HANGS = "it-hangs", "it hangs"
    THE_JOB_RUNS_ELSEWHERE = "the-job-runs-elsewhere", "the job runs elsewhere"
    LOST_DELIVERIES_MADE_UP = "lost-deliveries-made-up", "lost deliveries were made up for"
    EACH_JOB_RAN_ONCE = "each-job-ran-once", "each job ran once"
    THEY_RUN = "they-run", "they run"
    THEY_ARE_PULLED = "they-are-pulled", "they are pulled"
    ONE_OF_THEM_IS_IDLE = "one-of-them-is-idle", "one of them is idle"
    THE_BUSY_ONE_STAYS = "the-busy-one-stays", "the busy one stays"
    SOME_OF_THEM_WAIT = "some-of-them-wait", "some of them wait"
    OLDEST_AGE_EXPORTED = "oldest-age-exported", "the age of the oldest one is exported"
    OFFERED = "offered", "offered"
    IT_HAS_NO_JOB = "it-has-no-job", "it has no job"
    ONE_HANGS = "one-hangs", "one hangs"
    IT_IS_REPLACED = "it-is-replaced", "it is replaced"
    BOTH_HANG = "both-hang", "both hang"
    THEY_ARE_REPLACED = "they-are-replaced", "they are replaced"
    THE_IDLE_ONES_LEAVE = "the-idle-ones-leave", "the idle ones leave"
    IT_LEAVES = "it-leaves", "it leaves"
    THEY_ALL_RUN = "they-all-run", "they all run"
    IT_RUNS_ELSEWHERE = "it-runs-elsewhere", "it runs elsewhere"
    IT_ENDS_WELL = "it-ends-well", "it ends well"
    NO_WARM_RUNNER_WAS_REAPED = "no-warm-runner-was-reaped", "no warm runner was reaped"
    NO_REGISTRATION_IS_LEFT = "no-registration-is-left", "no registration is left"
    TWO_RUN = "two-run", "two run"
    WHAT_WAITED_RUNS = "what-waited-runs", "what waited runs"
    WHAT_RAN_ENDS_WELL = "what-ran-ends-well", "what ran ends well"
    ONE_RUNS = "one-runs", "one runs"
    NO_SLOT_IS_ARMED_YET = "no-slot-is-armed-yet", "no slot is armed yet"
    ALL_STAMPED_AND_IDLE = "all-stamped-and-idle", "28 Pods are stamped and idle"
    EVERY_POD_WAS_REPLACED_OR_USED = (
        "every-pod-was-replaced-or-used",
        "every Pod was replaced or used",
    )
    THE_RECOVERY_WAS_COUNTED = "the-recovery-was-counted", "the recovery was counted"
    PODS_STAMPED = "pods-stamped", "28 Pods are stamped"
    EACH_WAS_COUNTED = "each-was-counted", "each was counted"
    ITS_SLOT_HOLDS_ON = "its-slot-holds-on", "its slot holds on"
    THE_JOB_RUNS_ON = "the-job-runs-on", "the job runs on"
    NO_FENCE_WAS_NEEDED = "no-fence-was-needed", "no fence was needed"
    ALL_STAMPED = "all-stamped", "all stamped"
    THE_JOBS_RUN = "the-jobs-run", "the jobs run"
    EVERY_LEAKED_POD_IS_GONE = "every-leaked-pod-is-gone", "every leaked Pod is gone"
    JOBS_RUN_AGAIN = "jobs-run-again", "jobs run again"
    THE_HEAD_STILL_WAITS = "the-head-still-waits", "the head still waits"
    WHAT_CANNOT_RUN_IS_NO_DEMAND = "what-cannot-run-is-no-demand", "what cannot run is no demand"
    WHAT_RUNS_IS_COUNTED = "what-runs-is-counted", "what runs is counted"
    EVERY_TENANT_GETS_A_FAIR_SHARE = (
        "every-tenant-gets-a-fair-share",
        "every tenant gets a fair share",
    )
    EVERY_TENANT_STILL_HAD_JOBS = "every-tenant-still-had-jobs", "every tenant still had jobs"
    IT_IS_ANSWERED = "it-is-answered", "it is answered"
    THE_ONE_BEHIND_STARTS = "the-one-behind-starts", "the one behind starts"
    THE_HEAD_RUNS = "the-head-runs", "the head runs"
    FEW_REFUSED_MINTS = "few-refused-mints", "few mints are refused"
    FEW_FAILED_MINTS = "few-failed-mints", "few mints have no known outcome"
    FEW_PODS_LOST = "few-pods-lost", "at most one Pod is lost for four failed mints"
    ANOTHERS_JOB_STARTS_SOON = "anothers-job-starts-soon", "a job of another account starts soon"
    RUNNERS_ARE_USED_AGAIN = "runners-are-used-again", "runners are used again"
    BIRCHS_JOBS_RUN = "birchs-jobs-run", "birch's jobs run"
    FIRST_JOB_STARTS_SOON = (
        "first-job-starts-soon",
        "birch's first job starts within one job's length",
    )
    BIRCH_IS_TRIED_AGAIN = "birch-is-tried-again", "birch is tried again"
    ACMES_JOB_RUNS = "acmes-job-runs", "acme's job runs"
    WHAT_IS_OVER_STAYS_OVER = "what-is-over-stays-over", "what is over stays over"
    DELIVERIES_ANSWERED_AT_ONCE = (
        "deliveries-answered-at-once",
        "every delivery is answered at once",
    )
    EVERY_CLAIM_IS_GIVEN_BACK = "every-claim-is-given-back", "every claim is given back"
    IT_IS_ACCEPTED = "it-is-accepted", "it is accepted"
    BOTH_RUN = "both-run", "both run"
    JOBS_OVER = "jobs-over", "jobs over"
    THE_LEAK_IS_GONE = "the-leak-is-gone", "the leak is gone"
    HOST_HAS_NO_PODS = "host-has-no-pods", "the host has no Pods"
    HOST_HAS_PODS = "host-has-pods", "the host has Pods"
    RUNS = "runs", "runs"
    EVERY_JOB_ENDS_AS_EXPECTED = "every-job-ends-as-expected", "every job ends as expected"
    THE_ROLL_ENDS = "the-roll-ends", "the roll ends"
    THE_ROLL_TAKES_NO_MORE_THAN_ITS_CAP = (
        "the-roll-takes-no-more-than-its-cap",
        "the roll takes no more than its cap",
    )
