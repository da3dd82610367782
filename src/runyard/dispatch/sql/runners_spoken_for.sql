-- Runner names that a claim or a due fence speaks for.
SELECT runner_name FROM slots
WHERE runner_name <> '' AND (state IN ('offered', 'armed', 'executing') OR fence = 'due') ORDER BY runner_name;
