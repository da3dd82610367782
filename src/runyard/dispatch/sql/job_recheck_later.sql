-- Read a job later, because GitHub did not answer.
UPDATE jobs SET look_at = runyard_now() + make_interval(secs => %(recheck_in)s) WHERE job_id = %(job_id)s;
