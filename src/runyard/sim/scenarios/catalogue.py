"""The named incidents: what happened once, played again, with what must follow now."""

from runyard.sim.scenarios import (
    claims,
    crashes,
    deliveries,
    guests,
    outages,
    pods,
    rolls,
    turns,
    words,
)
from runyard.sim.scenarios.scenario import Scenario, Without

ALL = (
    Scenario(
        name="deploy-leaks-stamped-pods",
        tells="a deploy kills the servers between stamp and delivery, for the whole warm pool",
        shapes=pods.stamped_shapes,
        play=pods.deploy_leaks_stamped_pods,
        without=(
            Without(guard="deadline_offered", fails="the jobs run: not within", long=True),
            Without(
                guard="orphaned_stamped_pods",
                fails="every leaked Pod is gone: not within",
                long=True,
            ),
        ),
    ),
    Scenario(
        name="roll-does-not-collapse-the-pool",
        tells="a new image of tens of gigabytes reaches every host at the same time",
        shapes=rolls.shapes,
        play=rolls.roll_does_not_collapse_the_pool,
        without=(Without(guard="roll_cap", fails="serve, the roll may take"),),
    ),
    Scenario(
        name="lost-node-runner-lives-on",
        tells="a host loses the cluster while its runner works on, and comes back",
        shapes=pods.small,
        play=pods.lost_node_runner_lives_on,
        unguarded="an absence is no proof: no code that would conclude from it exists to be switched on",
    ),
    Scenario(
        name="webhooks-lost-for-an-hour",
        tells="no webhook arrives for an hour",
        shapes=outages.shapes,
        play=outages.webhooks_lost_for_an_hour,
        without=(Without(guard="loop_audit", fails="without excuse while"),),
    ),
    Scenario(
        name="agent-crash-at-every-effect",
        tells="the agent is killed at each effect of one Pod's life, before and after it",
        shapes=crashes.agent_shapes,
        play=crashes.agent_crash_at_every_effect,
        unguarded="the order of each effect and its record is the answer, not a guard",
    ),
    Scenario(
        name="server-crash-at-every-effect",
        tells="the server is killed at each effect of one dispatch, before and after it",
        shapes=crashes.server_shapes,
        play=crashes.server_crash_at_every_effect,
        unguarded="every deadline answers a part; `runyard prove` takes each of them away",
    ),
    Scenario(
        name="database-outage",
        tells="the database is away for ten minutes, and loses answers to commits before that",
        shapes=outages.shapes,
        play=outages.database_outage,
        unguarded="what is asked of silent runners kills nobody: `outage_grace` spares only the questions",
    ),
    Scenario(
        name="github-outage",
        tells="GitHub is away for twenty minutes while runners are armed",
        shapes=outages.shapes,
        play=outages.github_outage,
        unguarded="a fence that has no answer frees nothing: there is no other way to free it",
    ),
    *deliveries.SCENARIOS,
    *claims.SCENARIOS,
    *words.SCENARIOS,
    *guests.SCENARIOS,
    *turns.SCENARIOS,
)
BY_NAME = {scenario.name: scenario for scenario in ALL}
