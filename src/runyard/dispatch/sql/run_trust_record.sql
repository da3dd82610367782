-- Store what was read about a run: for its jobs that are not decided yet, and the account's number if it was not known.
WITH account AS (
    UPDATE tenants SET account_id = %(account_id)s
    WHERE tenant = %(tenant)s AND account_id = 0 AND %(account_id)s <> 0
)
UPDATE jobs SET trust = %(trust)s
WHERE tenant = %(tenant)s AND repository = %(repository)s AND run_id = %(run_id)s AND trust = '';
