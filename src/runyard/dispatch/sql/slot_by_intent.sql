-- The slot that a job is intended for.
SELECT pod_uid, tenant, intended_job, executing_job, state FROM slots WHERE intended_job = %(job_id)s;
