-- The columns of one table, also the computed ones (hidden is not 0), which are not read, so that no expression of an untrusted file is evaluated.
SELECT name, hidden FROM pragma_table_xinfo(:table);
