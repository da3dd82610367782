-- These objects are deleted.
DELETE FROM blob_graves WHERE storage_key = ANY(%(keys)s);
