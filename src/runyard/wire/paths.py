"""Paths of the internal HTTP API between components."""

INTERNAL = "/api/internal/"  # what only parts of a fleet call begins like this
DISPATCH = "/api/internal/runners/dispatch"
POD_STOPPED = "/api/internal/runners/pods/stopped"
POD_METRICS = "/api/internal/runners/pods/{pod_name}/metrics"
DESIRED_REPLICAS = "/api/internal/runners/desired_replicas"
GITHUB_WEBHOOK = "/webhooks/github"
BLOBS = "/api/v1/blobs"  # where signed links to objects lead
