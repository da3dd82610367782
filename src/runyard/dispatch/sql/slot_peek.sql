-- One slot without a lock, to find the rows to lock first.
SELECT pod_uid, tenant, intended_job, executing_job, state FROM slots WHERE pod_uid = %(pod_uid)s;
