-- Open a slot. Its generation starts at the current time, so that it never repeats, even after a lost commit.
-- Fails if the Pod has a slot, or its name an open one.
INSERT INTO slots (
    pod_uid, pod_name, pool, generation, state, deadline, last_beat, opened_at
) VALUES (
    %(pod_uid)s, %(pod_name)s, %(pool)s, (extract(epoch FROM runyard_now()) * 1000000)::bigint, %(state)s,
    runyard_now() + make_interval(secs => %(wait)s), runyard_now(), runyard_now()
)
RETURNING generation;
