-- The stored columns of one table; computed ones are not among them, so a stranger's expression is never evaluated.
SELECT name FROM pragma_table_info(:table);
