#!/bin/sh
# The runner calls this hook when its job starts: from here on it is not idle, and the idle timeout does not end it.
: >"${RUNYARD_WORK_DIR:?}/.job-started"
