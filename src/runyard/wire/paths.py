"""Paths of the internal HTTP API between components."""

INTERNAL = "/api/internal/"  # the prefix of paths that only components call
DISPATCH = "/api/internal/runners/dispatch"
POD_STOPPED = "/api/internal/runners/pods/stopped"
POD_METRICS = "/api/internal/runners/pods/{pod_name}/metrics"
DESIRED_REPLICAS = "/api/internal/runners/desired_replicas"
GITHUB_WEBHOOK = "/webhooks/github"
BLOBS = "/api/v1/blobs"  # the path of signed links to objects
