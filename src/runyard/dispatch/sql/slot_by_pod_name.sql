-- The open slot with that Pod name.
SELECT pod_uid, tenant, intended_job, executing_job, state FROM slots
WHERE pod_name = %(pod_name)s AND state <> 'closed';
