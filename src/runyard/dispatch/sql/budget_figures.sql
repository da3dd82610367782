-- What is left of every rate budget.
SELECT key,
    least(%(capacity)s::double precision, level + greatest(0, extract(epoch FROM runyard_now() - at)) * %(capacity)s::double precision / 60)::double precision AS points,
    greatest(0, extract(epoch FROM open_at - runyard_now()))::double precision AS closed,
    hour_limit, hour_left,
    greatest(0, coalesce(extract(epoch FROM hour_ends - runyard_now()), 0))::double precision AS hour_ends_in
FROM github_budgets ORDER BY key;
