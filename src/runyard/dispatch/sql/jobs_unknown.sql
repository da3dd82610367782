-- Which of these jobs are not stored.
SELECT job_id FROM unnest(%(job_ids)s::bigint[]) AS asked (job_id)
WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.job_id = asked.job_id) ORDER BY job_id;
