//! Creation and deletion of levels, and their dumps.

use super::*;
use crate::flowcontrol::dump::Dump;

#[tokio::test(start_paused = true)]
async fn a_deleted_level_serves_its_queued_requests_and_is_then_removed() {
    let (controller, _) = busy(10);
    let held = fill(&controller, "u");
    let mut waiting = get(&controller, "u", "busy").admission.unwrap();
    controller.digest([], []);
    assert_eq!(
        get(&controller, "u", "busy").uids.schema,
        "",
        "new requests go elsewhere"
    );
    assert!(controller.dump(Dump::Levels).contains("busy,"));
    drop(held);
    waiting.dispatched().await;
    drop(waiting);
    controller.rebalance();
    assert!(!controller.dump(Dump::Levels).contains("busy,"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_level_stays_while_a_request_with_the_previous_schemas_may_enter_it() {
    let (controller, _) = busy(10);
    // As a request that is being classified.
    let previous = controller.schemas.load_full();
    controller.digest([], []);
    assert!(controller.dump(Dump::Levels).contains("busy,"));
    controller.rebalance();
    assert!(controller.dump(Dump::Levels).contains("busy,"));
    drop(previous);
    controller.rebalance();
    assert!(!controller.dump(Dump::Levels).contains("busy,"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_level_is_removed_with_its_object() {
    let (controller, _) = busy(10);
    controller.digest([], []);
    assert!(!controller.dump(Dump::Levels).contains("busy,"));
}

#[tokio::test(start_paused = true)]
async fn a_level_that_comes_back_keeps_its_requests() {
    let (controller, _) = busy(10);
    let held = fill(&controller, "u");
    controller.digest([], []);
    controller.digest(&[schema("busy", 100, "busy", "busy")], &[level("busy", 5, 10)]);
    assert!(get(&controller, "u", "busy").admission.unwrap().is_waiting());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn dumps_show_levels_queues_and_requests() {
    let (controller, _) = busy(10);
    let _held = fill(&controller, "u");
    let _waiting = get(&controller, "u", "busy").admission.unwrap();
    let levels = controller.dump(Dump::Levels);
    let line = levels.lines().find(|l| l.starts_with("busy,")).unwrap();
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    assert_eq!(cells, ["busy", "1", "false", "false", "1", "10", "10", "0", "0", "0"]);
    let queues = controller.dump(Dump::Queues);
    assert_eq!(queues.lines().filter(|l| l.starts_with("busy,")).count(), 64);
    let requests = controller.dump(Dump::Requests(true));
    let rows: Vec<Vec<&str>> = requests
        .lines()
        .skip(1)
        .map(|l| l.split(',').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 11);
    let waiting = rows.iter().find(|r| r[3] == "0").unwrap();
    assert_eq!(
        (waiting[0], waiting[1], waiting[4], waiting[9]),
        ("busy", "busy", "u", "0001-01-01T00:00:00Z")
    );
    assert_eq!(
        waiting[10..],
        ["u", "get", "/api/v1/namespaces/a/pods/p", "a", "p", "v1", "pods", ""]
    );
    assert_eq!(rows.iter().filter(|r| r[3] == "-1").count(), 10);
}
