-- Marks the run as processed by its claim, in the transaction that wrote the results.
UPDATE test_runs
SET state = 'processed', finished_at = runyard_now(), lease_owner = '', lease_until = NULL, spent = %(spent)s,
    reason_code = '', reason_detail = '{}',
    status = said.status, duration_ms = said.duration_ms, test_plan = said.test_plan, format = said.format,
    source = said.source, is_flaky = said.flaky > 0, cases = said.cases, failed = said.failed, skipped = said.skipped,
    flaky = said.flaky, destinations = said.destinations, errors = said.errors, warnings = said.warnings,
    build_issues = said.build_issues, attachments_dropped = %(dropped)s,
    covered_lines = said.covered_lines, executable_lines = said.executable_lines,
    scheme = COALESCE(NULLIF(said.test_plan, ''), scheme)
FROM jsonb_to_record(%(summary)s::jsonb) AS said (
    status text, duration_ms bigint, test_plan text, format text, source text, cases integer, failed integer,
    skipped integer, flaky integer, destinations jsonb, errors jsonb, warnings jsonb, build_issues jsonb,
    covered_lines bigint, executable_lines bigint
)
WHERE run_id = %(run_id)s AND shard = %(shard)s
    AND state = 'processing' AND attempt = %(attempt)s AND lease_owner = %(owner)s
RETURNING queue_job
