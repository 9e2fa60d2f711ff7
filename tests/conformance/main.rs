//! One suite of storage behaviours that runs over every backend.

// clippy's `allow-unwrap-in-tests` does not cover helper functions of a test binary.
#![allow(
    clippy::unwrap_used,
    reason = "`allow-unwrap-in-tests` does not cover helper functions"
)]
// A `json!` invocation with many members needs this.
#![recursion_limit = "512"]

mod access;
mod cost;
mod crash;
mod damage;
#[path = "../support/etcd.rs"]
mod etcd_process;
mod histories;
mod leases;
mod lists;
mod memory;
mod partitions;
mod random;
mod shared;
mod support;
mod watches;
mod writes;

/// Runs each behaviour over a fresh store of each backend.
macro_rules! suite {
    ($($module:ident :: $claim:ident),* $(,)?) => {
        mod embedded {
            $(#[test] fn $claim() { super::support::run(super::support::BackendKind::Embedded, super::$module::$claim); })*
        }
        mod encrypted {
            $(#[test] fn $claim() { super::support::run(super::support::BackendKind::Encrypted, super::$module::$claim); })*
        }
        mod etcd_progress {
            $(#[test] fn $claim() { super::support::run(super::support::BackendKind::EtcdProgress, super::$module::$claim); })*
        }
        mod etcd {
            $(#[test] fn $claim() { super::support::run(super::support::BackendKind::Etcd, super::$module::$claim); })*
        }
    };
}

suite! {
    writes::an_empty_store_is_at_revision_one,
    writes::a_created_object_is_read_back,
    writes::creating_twice_is_a_conflict,
    writes::an_update_needs_the_revision_it_read,
    writes::a_deletion_returns_the_last_state_at_its_own_revision,
    writes::revisions_are_shared_by_resources_and_grow_by_one,
    writes::one_of_concurrent_updates_wins,
    writes::a_read_waits_for_a_future_revision,
    writes::a_read_of_the_far_future_is_too_new,
    writes::an_object_with_a_ttl_expires,
    writes::an_abandoned_write_is_made_once_or_not_at_all,
    lists::a_list_is_in_key_order_and_in_its_prefix,
    lists::a_list_of_one_key_returns_no_other,
    lists::an_exact_list_shows_the_past,
    lists::pages_show_one_state,
    lists::a_page_filled_by_a_selector_has_no_remaining_count,
    lists::a_token_without_revision_continues_at_the_latest_state,
    lists::a_list_at_any_revision_ignores_the_limit,
    lists::a_list_carries_the_stores_revision,
    watches::changes_arrive_in_order_with_their_type,
    watches::a_selector_turns_changes_into_additions_and_deletions,
    watches::the_initial_state_comes_first_and_has_an_end,
    watches::a_watch_resumes_after_a_revision,
    watches::a_watch_older_than_history_reports_where_history_begins,
    watches::a_watch_from_the_future_is_quiet_until_then,
    watches::a_watch_is_scoped_to_a_namespace_or_a_key,
    watches::a_stalled_watcher_does_not_delay_writers,
    watches::initial_state_and_live_changes_join_without_gaps,
    watches::a_dropped_watch_is_removed,
}
