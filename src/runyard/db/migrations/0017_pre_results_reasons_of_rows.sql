-- The runs and attempts that had a code and a sentence before 0016; its trigger knows the slugs. A file of its own: it
-- takes the locks of these rows and no other, so processing goes on meanwhile. Few rows have a reason.
UPDATE test_runs SET reason = reason WHERE reason <> '';
UPDATE test_attempts SET reason = reason WHERE reason <> '';
