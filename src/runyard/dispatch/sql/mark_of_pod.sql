-- The job that a Pod runs or waits for, what the Pod's labels say, and what is known about the origin of the job's code.
SELECT s.pod_uid, s.pod_name, s.marked_account, s.marked_untrusted,
    coalesce(s.executing_job, s.intended_job) AS job_id,
    j.trust, j.repository, j.run_id, t.installation_id, t.account_id, t.tenant
FROM slots s JOIN jobs j ON j.job_id = coalesce(s.executing_job, s.intended_job) JOIN tenants t ON t.tenant = j.tenant
WHERE s.pod_uid = %(pod_uid)s;
