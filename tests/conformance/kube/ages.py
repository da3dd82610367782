"""The first version of Kubernetes that can pass a script, where 1.20 cannot.

Tried were 1.20.2 and a current one. In between a version is named where it is known when the feature came; otherwise
it is the oldest that is called modern. A script may also carry `@pytest.mark.since` itself.
"""

Version = tuple[int, int]

_SCRIPTS: dict[Version, tuple[str, ...]] = {
    # An eviction is of policy/v1.
    (1, 22): (
        "test_an_eviction_is_refused",
        "test_an_eviction_may_be_tried_out",
        "test_an_eviction_of_what_needs_nobody_is_a_removal",
        "test_an_eviction_is_a_deletion",
    ),
    # Tokens of accounts are projected, not kept in Secrets.
    (1, 24): (
        "test_a_pod_pulls_images_with_the_secrets_of_its_account",
        "test_a_volume_of_that_name_is_used",
        "test_every_container_is_given_the_token",
        "test_nobody_owns_what_was_added",
        "test_the_names_of_volumes_differ",
        "test_who_does_not_want_a_token_has_none",
    ),
    # Fields are validated by the server, kinds say what one of them is called, and schemas are told in version 3.
    (1, 27): (
        "test_strict_field_validation_names_unknown_fields",
        "test_warnings_name_unknown_fields",
        "test_a_member_that_is_there_twice_is_told_or_refused",
        "test_a_parameter_that_makes_no_sense_is_named",
        "test_a_patch_with_unknown_fields_is_told_or_refused",
        "test_a_kind_is_described",
        "test_openapi_knows_the_served_groups",
    ),
    # Callers may ask who they are.
    (1, 28): (
        "test_callers_can_ask_who_they_are",
        "test_a_key_of_extra_is_unescaped",
        "test_a_right_on_users_is_none_on_accounts",
        "test_whoever_acts_as_another_has_their_groups",
    ),
    # Words, causes, conditions and limits that have changed since.
    (1, 30): (
        "test_status_is_owned_apart",
        "test_a_request_is_for_one_signer_and_known_usages",
        "test_a_verdict_is_a_yes_or_a_no",
        "test_a_taint_drives_away_who_does_not_bear_it",
        "test_an_eviction_says_so_on_the_pod",
        "test_in_a_namespace_pods_go_first",
        "test_pods_of_a_node_that_is_no_more_are_removed",
        "test_what_a_node_says_of_itself_keeps_pods_away",
        "test_a_custom_object_is_checked",
        "test_a_namespace_goes_with_everything_in_it",
        "test_a_negative_grace_is_refused",
        "test_a_node_keeps_its_networks_and_its_provider",
        "test_nothing_has_more_than_one_form",
        "test_the_version_is_told",
        "test_who_looks_sees_no_leases",
        "test_a_list_is_not_older_than_what_was_just_written",
        "test_a_list_says_what_it_is",
        "test_a_version_that_is_none_is_refused",
        "test_the_usual_roles_grant_the_same",
        "test_the_certificate_is_in_every_namespace",
        "test_a_taint_keeps_pods_away",
        "test_what_does_not_fit_is_told_in_an_event",
        "test_a_gate_stands_since_the_pod_was_made",
        "test_a_host_that_changes_changes_in_both_places",
        "test_the_class_of_quality_need_not_be_said_again",
        "test_a_put_that_creates_needs_the_right_to_create",
        "test_an_apply_that_creates_needs_the_right_to_create",
        "test_a_pod_behind_a_gate_waits_until_it_opens",
        "test_a_pod_that_nobody_runs_is_marked_and_then_gone",
        "test_a_selector_that_cannot_be_read_is_explained",
        "test_conflicts_are_told_by_manager_and_path",
        "test_kubectl_takes_over_what_it_applied_from_its_own_side",
        "test_who_takes_a_share_without_a_change_has_no_time",
        "test_a_row_shows_a_running_pod",
        "test_a_number_of_64_bits_has_no_more",
        "test_a_pod_with_centuries_to_go_can_be_deleted",
    ),
    # A watch may begin with what is there.
    (1, 32): ("test_initial_events_end_with_a_bookmark", "test_initial_events_need_a_match"),
}
SINCE = {script: version for version, scripts in _SCRIPTS.items() for script in scripts}
