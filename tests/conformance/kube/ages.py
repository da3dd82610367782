"""The first version of Kubernetes that can pass a script, where 1.20 cannot.

The scripts were run on 1.20.2 and on a current version. The version in between is that of the feature where it is
known, otherwise the oldest one that counts as modern. A script can also use `@pytest.mark.since`.
"""

Version = tuple[int, int]

_SCRIPTS: dict[Version, tuple[str, ...]] = {
    # Evictions use policy/v1.
    (1, 22): (
        "test_an_eviction_is_refused",
        "test_an_eviction_can_be_a_dry_run",
        "test_an_eviction_of_an_unbound_pod_removes_it",
        "test_an_eviction_is_a_deletion",
    ),
    # Tokens of accounts are projected, not kept in Secrets.
    (1, 24): (
        "test_a_pod_pulls_images_with_the_secrets_of_its_account",
        "test_a_volume_of_that_name_is_used",
        "test_every_container_gets_the_token",
        "test_added_fields_have_no_manager",
        "test_the_names_of_volumes_differ",
        "test_a_pod_can_opt_out_of_its_token",
    ),
    # The server validates fields, discovery has singular names, and schemas are served as OpenAPI v3.
    (1, 27): (
        "test_strict_field_validation_names_unknown_fields",
        "test_warnings_name_unknown_fields",
        "test_a_duplicate_member_is_warned_about_or_refused",
        "test_an_invalid_parameter_is_named",
        "test_a_patch_with_unknown_fields_is_warned_about_or_refused",
        "test_a_kind_is_described",
        "test_openapi_lists_the_served_groups",
    ),
    # SelfSubjectReviews exist.
    (1, 28): (
        "test_callers_can_review_their_own_identity",
        "test_a_key_of_extra_is_unescaped",
        "test_a_right_on_users_does_not_include_accounts",
        "test_impersonation_completes_the_groups",
    ),
    # Messages, causes, conditions and limits that have changed since.
    (1, 30): (
        "test_status_is_owned_apart",
        "test_a_request_is_for_one_signer_and_known_usages",
        "test_an_approval_condition_is_valid_and_unique",
        "test_a_noexecute_taint_evicts_pods_that_do_not_tolerate_it",
        "test_an_eviction_sets_a_condition_on_the_pod",
        "test_pods_of_a_namespace_are_deleted_first",
        "test_pods_of_a_deleted_node_are_removed",
        "test_conditions_of_a_node_become_taints",
        "test_a_custom_object_is_checked",
        "test_a_deleted_namespace_deletes_its_contents",
        "test_a_negative_grace_is_refused",
        "test_a_node_keeps_its_networks_and_its_provider",
        "test_nothing_has_more_than_one_form",
        "test_the_version_is_served",
        "test_the_view_role_has_no_leases",
        "test_a_list_is_not_older_than_what_was_just_written",
        "test_a_list_has_kind_and_version",
        "test_an_invalid_version_is_refused",
        "test_the_usual_roles_grant_the_same",
        "test_the_certificate_is_in_every_namespace",
        "test_a_taint_keeps_pods_away",
        "test_an_unschedulable_pod_gets_an_event",
        "test_the_gated_condition_dates_from_the_creation",
        "test_a_host_that_changes_changes_in_both_places",
        "test_the_qos_class_may_be_left_out",
        "test_a_put_that_creates_needs_the_right_to_create",
        "test_an_apply_that_creates_needs_the_right_to_create",
        "test_a_gated_pod_waits_until_its_gate_is_removed",
        "test_an_unbound_pod_is_marked_and_then_removed",
        "test_an_invalid_selector_is_explained",
        "test_conflicts_are_listed_by_manager_and_path",
        "test_kubectl_takes_over_fields_of_its_client_side_apply",
        "test_an_apply_without_a_change_has_no_time",
        "test_a_row_shows_a_running_pod",
        "test_a_number_of_64_bits_has_no_more",
        "test_a_pod_with_a_grace_of_centuries_can_be_deleted",
    ),
    # A watch may begin with initial events.
    (1, 32): ("test_initial_events_end_with_a_bookmark", "test_initial_events_need_a_match"),
}
SINCE = {script: version for version, scripts in _SCRIPTS.items() for script in scripts}
