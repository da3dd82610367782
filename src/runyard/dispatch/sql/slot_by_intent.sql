-- The slot that is meant for a job.
SELECT pod_uid, tenant, intended_job, executing_job, state FROM slots WHERE intended_job = %(job_id)s;
