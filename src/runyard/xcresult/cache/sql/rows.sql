-- All rows of one table in the order in which they were written. The names in braces are taken from the schema and quoted.
SELECT rowid, {columns} FROM {table} ORDER BY rowid;
