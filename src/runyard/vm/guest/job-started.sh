#!/bin/sh
# The runner calls this when it was given its one job: from here on it is not idle, and nobody ends it for that.
: >"${RUNYARD_WORK_DIR:?}/.job-started"
