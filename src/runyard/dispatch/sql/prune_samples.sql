-- Delete samples of machines after their retention, oldest first.
DELETE FROM samples WHERE (job_id, at) IN (
    SELECT s.job_id, s.at FROM samples s WHERE s.at < runyard_now() - make_interval(secs => %(older)s)
    ORDER BY s.at, s.job_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
