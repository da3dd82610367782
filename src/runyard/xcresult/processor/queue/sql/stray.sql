-- Jobs in progress that belong to no run in progress.
SELECT job.id FROM procrastinate_jobs AS job
WHERE job.queue_name = %(queue)s AND job.status = 'doing'
    AND NOT EXISTS (
        SELECT FROM test_runs AS run WHERE run.queue_job = job.id AND run.state = 'processing'
    )
ORDER BY job.id LIMIT %(most)s
FOR UPDATE SKIP LOCKED
