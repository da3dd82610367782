-- Try the accounts whose last mint had this outcome soon. A try that is under way has no longer to go, and is not repeated.
UPDATE exclusions SET until = least(until, runyard_now() + make_interval(secs => %(within)s))
WHERE kind = 'account' AND reason = %(reason)s;
