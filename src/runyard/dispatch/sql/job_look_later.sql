-- GitHub could not be asked about a job now.
UPDATE jobs SET look_at = runyard_now() + make_interval(secs => %(look_in)s) WHERE job_id = %(job_id)s;
