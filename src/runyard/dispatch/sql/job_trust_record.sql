-- Store what was read about the origin of a job's code, and the account's number if it was not known.
WITH account AS (
    UPDATE tenants SET account_id = %(account_id)s
    WHERE tenant = %(tenant)s AND account_id = 0 AND %(account_id)s <> 0
)
UPDATE jobs SET trust = %(trust)s WHERE job_id = %(job_id)s AND trust = %(before)s;
