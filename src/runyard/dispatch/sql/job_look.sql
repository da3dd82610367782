-- When a job is to be looked at. It moves whenever the job is given back, so it dates what was asked about the job.
SELECT look_at FROM jobs WHERE job_id = %(job_id)s;
