-- The `last_beat` of a poll whose connection was cut before its answer: the Pod asks for work again once they differ.
ALTER TABLE slots ADD COLUMN dropped_beat timestamptz;
