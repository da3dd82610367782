-- Block a rate budget after a `retry-after` of GitHub. A shorter wait never shortens a longer one.
INSERT INTO github_budgets (key, level, at, open_at)
VALUES (%(key)s, %(capacity)s::double precision, runyard_now(), runyard_now() + make_interval(secs => %(seconds)s::double precision))
ON CONFLICT (key) DO UPDATE SET open_at = greatest(github_budgets.open_at, excluded.open_at);
