-- The stored columns of one table; computed columns are not included, so that no expression of an untrusted file is evaluated.
SELECT name FROM pragma_table_info(:table);
