-- Create the rate budget of a new key, full.
INSERT INTO github_budgets (key, level, at, open_at)
VALUES (%(key)s, %(capacity)s::double precision, runyard_now(), runyard_now()) ON CONFLICT DO NOTHING;
