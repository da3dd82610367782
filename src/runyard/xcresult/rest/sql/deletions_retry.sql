-- The store did not delete these objects: retry later, with a growing delay.
UPDATE blob_graves
SET tries = tries + 1, next_try = runyard_now() + make_interval(secs => LEAST(86400, %(retry)s * 2 ^ LEAST(tries, 20)))
WHERE storage_key = ANY(%(keys)s);
