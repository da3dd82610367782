"""The list of named incidents that the simulator replays."""

from runyard.sim.scenarios import (
    claims,
    crashes,
    deliveries,
    events,
    fairness,
    guests,
    mints,
    outages,
    pods,
    rolls,
)
from runyard.sim.scenarios.expectations import Expectation
from runyard.sim.scenarios.scenario import Scenario, Without
from runyard.sim.violations import Violated

ALL = (
    Scenario(
        name="deploy-leaks-stamped-pods",
        summary="a deploy kills the servers between stamp and delivery, for the whole warm pool",
        shapes=pods.stamped_shapes,
        play=pods.deploy_leaks_stamped_pods,
        without=(
            Without(guard="deadline_offered", fails=Expectation.THE_JOBS_RUN, long=True),
            Without(
                guard="orphaned_stamped_pods",
                fails=Expectation.EVERY_LEAKED_POD_IS_GONE,
                long=True,
            ),
        ),
    ),
    Scenario(
        name="roll-does-not-collapse-the-pool",
        summary="a new image of tens of gigabytes reaches every host at the same time",
        shapes=rolls.shapes,
        play=rolls.roll_does_not_collapse_the_pool,
        without=(Without(guard="roll_cap", fails=Expectation.THE_ROLL_TAKES_NO_MORE_THAN_ITS_CAP),),
    ),
    Scenario(
        name="lost-node-runner-lives-on",
        summary="a host loses its connection to the cluster while its runner executes a job, and reconnects",
        shapes=pods.small,
        play=pods.lost_node_runner_lives_on,
        unguarded="no code concludes anything from a missing Pod, so there is no guard to switch off",
    ),
    Scenario(
        name="webhooks-lost-for-an-hour",
        summary="no webhook arrives for an hour",
        shapes=outages.shapes,
        play=outages.webhooks_lost_for_an_hour,
        without=(Without(guard="loop_delivery_audit", fails=Violated.JOB_WAITS_UNEXCUSED),),
    ),
    Scenario(
        name="agent-crash-at-every-effect",
        summary="the agent is killed before and after each of its effects on one Pod",
        shapes=crashes.agent_shapes,
        play=crashes.agent_crash_at_every_effect,
        unguarded="the order of effects and records prevents it, not a guard",
    ),
    Scenario(
        name="server-crash-at-every-effect",
        summary="the server is killed before and after each of its effects for one job",
        shapes=crashes.server_shapes,
        play=crashes.server_crash_at_every_effect,
        unguarded="every deadline covers some of it; `runyard prove` switches each of them off",
    ),
    Scenario(
        name="database-outage",
        summary="responses to commits are lost, then the database is unavailable for ten minutes",
        shapes=outages.shapes,
        play=outages.database_outage,
        unguarded="checks of silent runners delete none: `outage_grace` only avoids the checks",
    ),
    Scenario(
        name="github-outage",
        summary="GitHub is unavailable for twenty minutes while runners are armed",
        shapes=outages.shapes,
        play=outages.github_outage,
        unguarded="a fence without an answer frees nothing, and there is no other way to free a runner",
    ),
    *deliveries.SCENARIOS,
    *claims.SCENARIOS,
    *events.SCENARIOS,
    *guests.SCENARIOS,
    *fairness.SCENARIOS,
    *mints.SCENARIOS,
)
BY_NAME = {scenario.name: scenario for scenario in ALL}
