-- Record what a Pod's labels say now; returns the job that the Pod runs or waits for by now.
UPDATE slots SET marked_job = %(job_id)s, marked_untrusted = marked_untrusted OR %(untrusted)s,
    marked_account = CASE WHEN %(account_id)s = 0 THEN marked_account ELSE %(account_id)s END
WHERE pod_uid = %(pod_uid)s
RETURNING coalesce(executing_job, intended_job) AS job_id;
