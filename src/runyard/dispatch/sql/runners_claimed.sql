-- Runner names with a claim or a due fence.
SELECT runner_name FROM slots
WHERE runner_name <> '' AND (state IN ('offered', 'armed', 'executing') OR fence = 'due') ORDER BY runner_name;
