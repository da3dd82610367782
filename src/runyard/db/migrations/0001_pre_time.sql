-- The one source of time for every statement and every deadline.
-- In production it is the server's clock at the start of the statement, so one statement sees one time.
-- The simulator, and nobody else, sets runyard.now for the length of a transaction.
-- A plain SQL function without SET and without STRICT: the planner puts its body in place of the call,
-- and because it is STABLE it can be compared with an indexed column.
CREATE FUNCTION runyard_now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT COALESCE(
        NULLIF(current_setting('runyard.now', true), '')::timestamptz,
        statement_timestamp()
    )
$$;
