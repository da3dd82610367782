-- Let this transaction's COMMIT return before it is on the disk. For writes whose loss in a crash is harmless: a later
-- COMMIT that waits for the disk makes them durable with itself.
SET LOCAL synchronous_commit TO off;
