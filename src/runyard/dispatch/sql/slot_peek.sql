-- One slot as it is, without a lock: to learn which rows to lock first.
SELECT pod_uid, tenant, intended_job, executing_job, state FROM slots WHERE pod_uid = %(pod_uid)s;
