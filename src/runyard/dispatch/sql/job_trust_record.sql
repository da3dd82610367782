-- Store what was read about the origin of a job's code.
UPDATE jobs SET trust = %(trust)s WHERE job_id = %(job_id)s AND trust = %(before)s;
