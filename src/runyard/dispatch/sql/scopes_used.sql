-- Every scope in which runners of ours may be registered, and the tenants behind it.
SELECT DISTINCT scope, installation_id FROM slots WHERE scope <> '' ORDER BY scope, installation_id;
