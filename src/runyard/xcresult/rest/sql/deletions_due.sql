-- Objects that are to be deleted now.
SELECT storage_key, kind, tries FROM blob_graves
WHERE next_try <= runyard_now() ORDER BY next_try, storage_key LIMIT %(limit)s;
