-- The gap to continue with: the newest (1), because its jobs still wait, or the oldest (-1), so that it ends.
SELECT id, extract(epoch FROM since)::double precision AS since, page FROM delivery_gaps
ORDER BY extract(epoch FROM until) * %(newest)s::integer DESC, id DESC LIMIT 1;
