-- Delete jobs that ended long ago and that no slot refers to, oldest first.
DELETE FROM jobs WHERE job_id IN (
    SELECT j.job_id FROM jobs j
    WHERE j.state = 'done' AND j.completed_at < runyard_now() - make_interval(secs => %(older)s)
        AND NOT EXISTS (SELECT FROM slots s WHERE s.intended_job = j.job_id)
        AND NOT EXISTS (SELECT FROM slots s WHERE s.executing_job = j.job_id AND s.state <> 'closed')
    ORDER BY j.completed_at, j.job_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
