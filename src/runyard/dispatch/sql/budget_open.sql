-- A key that nothing was spent for yet: its bucket is full.
INSERT INTO github_budgets (key, level, at, open_at)
VALUES (%(key)s, %(capacity)s::double precision, runyard_now(), runyard_now()) ON CONFLICT DO NOTHING;
