-- The number of runs in each state, and since when the oldest is due.
SELECT
    count(*) FILTER (WHERE state = 'queued' AND due_at <= runyard_now() AND spent = 0) AS available,
    count(*) FILTER (WHERE state = 'queued' AND due_at <= runyard_now() AND spent > 0) AS retryable,
    count(*) FILTER (WHERE state = 'queued' AND due_at > runyard_now()) AS scheduled,
    count(*) FILTER (WHERE state = 'processing') AS executing,
    COALESCE(EXTRACT(epoch FROM runyard_now() - min(due_at) FILTER (WHERE state = 'queued' AND due_at <= runyard_now())), 0)
        ::double precision AS oldest
FROM test_runs WHERE state IN ('queued', 'processing')
