-- When a job is to be read at GitHub. The value changes when the job is requeued, so it dates an earlier read.
SELECT look_at FROM jobs WHERE job_id = %(job_id)s;
