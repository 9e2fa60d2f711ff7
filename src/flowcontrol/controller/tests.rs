mod levels;
mod schemas;
mod series;
mod shares;

use super::*;
use crate::flowcontrol::work_estimate::StoredObjects;
use crate::json;
use futures_util::FutureExt as _;
use http::Method;
use std::time::Duration;

struct Nothing;

impl ObjectCounts for Nothing {
    fn stored(&self, _: &str, _: &str) -> Option<StoredObjects> {
        None
    }
}

fn everything(group: &str) -> Value {
    json!([{
        "subjects": [{"kind": "Group", "group": {"name": group}}],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    }])
}

fn schema(name: &str, precedence: i64, level: &str, group: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("fs-{name}")},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": everything(group)
        }
    })
}

fn level(name: &str, shares: i64, queue_length: i64) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("pl-{name}")},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Queue", "queuing": {
                "queues": 64, "handSize": 6, "queueLengthLimit": queue_length
            }}
        }}
    })
}

pub(crate) fn mandatory() -> Mandatory {
    let without_uid = |mut object: Value| {
        object.set(&["metadata", "uid"], "");
        object
    };
    let exempt = json!({
        "metadata": {"name": "exempt"},
        "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}
    });
    let mut reject = level("catch-all", 5, 1);
    reject.set(&["spec", "limited", "limitResponse"], json!({"type": "Reject"}));
    Mandatory {
        schemas: vec![
            without_uid(schema("exempt", 1, "exempt", "system:masters")),
            without_uid(schema("catch-all", 10_000, "catch-all", "system:authenticated")),
        ],
        levels: vec![exempt, without_uid(reject)],
    }
}

/// A controller with the mandatory objects only.
pub(crate) fn imagined(seats: u32) -> Arc<FlowController> {
    FlowController::new(seats, mandatory(), Nothing, &Telemetry::new())
}

/// A controller with one level of `seats` seats for everybody but masters.
pub(crate) fn busy_for_all(seats: u32) -> Arc<FlowController> {
    let controller = FlowController::new(seats, mandatory(), Nothing, &Telemetry::new());
    controller.digest(
        &[schema("busy", 100, "busy", "system:authenticated")],
        &[level("busy", 5_000, 50)],
    );
    controller
}

/// As [`busy_for_all`], but the level's requests are all of one flow.
pub(crate) fn one_flow_for_all(seats: u32) -> Arc<FlowController> {
    let controller = imagined(seats);
    let mut one = schema("busy", 100, "busy", "system:authenticated");
    one.set(&["spec", "distinguisherMethod"], Value::Null);
    controller.digest(&[one], &[level("busy", 5_000, 50)]);
    controller
}

/// 10 seats for requests of the group `busy`, and 10 for the others.
fn busy(queue_length: i64) -> (Arc<FlowController>, Telemetry) {
    let telemetry = Telemetry::new();
    let controller = FlowController::new(20, mandatory(), Nothing, &telemetry);
    controller.digest(
        &[
            schema("busy", 100, "busy", "busy"),
            schema("dangling", 50, "nowhere", "busy"),
        ],
        &[level("busy", 5, queue_length)],
    );
    (controller, telemetry)
}

fn get(controller: &FlowController, user: &str, group: &str) -> Entered {
    let info = RequestInfo::resolve(&Method::GET, &"/api/v1/namespaces/a/pods/p".parse().unwrap()).unwrap();
    controller.enter(&Arc::new(UserInfo::system(user, &[group])), &Arc::new(info), "")
}

/// Takes all seats of the level `busy`.
fn fill(controller: &FlowController, user: &str) -> Vec<Permit> {
    let permits: Vec<Permit> = (0..10)
        .map(|_| get(controller, user, "busy").admission.unwrap())
        .collect();
    assert!(permits.iter().all(|permit| !permit.is_waiting()));
    permits
}

#[test]
fn missing_mandatory_objects_are_added() {
    let controller = imagined(600);
    for (group, schema) in [
        ("system:masters", "exempt"),
        ("system:authenticated", "catch-all"),
        ("x", "catch-all"),
    ] {
        let entered = get(&controller, "u", group);
        assert_eq!(
            (&entered.uids.schema, &entered.uids.level),
            (&"".parse().unwrap(), &"".parse().unwrap())
        );
        let permit = entered.admission.expect("there are seats");
        assert_eq!(&**permit.level_name(), schema);
    }
}

#[test]
fn the_first_matching_schema_whose_level_exists_applies() {
    let (controller, _) = busy(10);
    let entered = get(&controller, "u", "busy");
    assert_eq!(
        (entered.uids.schema.as_bytes(), entered.uids.level.as_bytes()),
        (&b"fs-busy"[..], &b"pl-busy"[..])
    );
    assert_ne!(entered.flow, get(&controller, "v", "busy").flow, "users are flows");
    assert_eq!(entered.flow, get(&controller, "u", "busy").flow);
}

#[test]
fn queues_of_a_flow_differ_between_servers() {
    let flow = || get(&busy(10).0, "u", "busy").flow;
    assert_ne!(flow(), flow(), "nobody can compute which names share queues");
}

#[test]
fn flows_of_different_schemas_differ() {
    let controller = imagined(20);
    controller.digest(
        &[
            schema("a", 100, "catch-all", "one"),
            schema("ab", 200, "catch-all", "two"),
        ],
        [],
    );
    let flow = |user, group| get(&controller, user, group).flow;
    assert_ne!(flow("u", "one"), flow("u", "two"));
    assert_ne!(flow("bc", "one"), flow("c", "two"), "the names are kept apart");
}

#[tokio::test(start_paused = true)]
async fn a_full_level_does_not_affect_others() {
    let (controller, _) = busy(10);
    let _held = fill(&controller, "u");
    assert!(get(&controller, "u", "busy").admission.unwrap().is_waiting());
    assert!(get(&controller, "other", "system:authenticated").admission.is_ok());
    assert!(get(&controller, "admin", "system:masters").admission.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_user_does_not_starve_another_one_of_the_level() {
    let (controller, _) = busy(50);
    let mut held = fill(&controller, "flood");
    let mut waiting: Vec<Permit> = (0..200)
        .map(|_| get(&controller, "flood", "busy").admission.unwrap())
        .collect();
    let mut quiet = get(&controller, "quiet", "busy").admission.unwrap();
    assert!(quiet.is_waiting());
    let mut served = 0;
    // Each request takes 50 ms. The flooder's next requests run, too, but not all of them first.
    while quiet.dispatched().now_or_never().is_none() {
        tokio::time::advance(Duration::from_millis(50)).await;
        drop(held.pop().expect("a request executes while others wait"));
        served += 1;
        let (running, rest): (Vec<_>, Vec<_>) =
            waiting
                .into_iter()
                .partition_map(|mut permit| match permit.dispatched().now_or_never() {
                    Some(()) => Ok(permit),
                    None => Err(permit),
                });
        held.extend(running);
        waiting = rest;
    }
    assert!(served <= 11, "{served} requests of the flood ran before it");
}

/// `Iterator::partition` that moves.
trait PartitionMap: Iterator + Sized {
    fn partition_map<T>(self, mut f: impl FnMut(Self::Item) -> Result<T, T>) -> (Vec<T>, Vec<T>) {
        let (mut ok, mut err) = (Vec::new(), Vec::new());
        for item in self {
            match f(item) {
                Ok(item) => ok.push(item),
                Err(item) => err.push(item),
            }
        }
        (ok, err)
    }
}

impl<I: Iterator> PartitionMap for I {}

#[tokio::test(start_paused = true)]
async fn full_queues_reject_with_a_growing_retry_after() {
    let (controller, telemetry) = busy(1);
    let _held = fill(&controller, "u");
    let mut waiting = Vec::new();
    let reject = loop {
        match get(&controller, "u", "busy").admission {
            Ok(permit) => waiting.push(permit),
            Err(why) => break why,
        }
    };
    assert_eq!(
        (waiting.len(), reject.retry_after),
        (6, 1),
        "a hand of six queues of one request"
    );
    let mut told = 0;
    for _ in 0..4 {
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..10 {
            told = get(&controller, "u", "busy")
                .admission
                .err()
                .expect("it is full")
                .retry_after;
        }
    }
    assert!(told >= 4, "{told}");
    let text = String::from_utf8(telemetry.text()).unwrap();
    for line in [
        r#"apiserver_flowcontrol_rejected_requests_total{flow_schema="busy",priority_level="busy",reason="queue-full"} 41"#,
        r#"apiserver_flowcontrol_current_inqueue_requests{flow_schema="busy",priority_level="busy"} 6"#,
        r#"apiserver_flowcontrol_current_executing_seats{flow_schema="busy",priority_level="busy"} 10"#,
        r#"apiserver_flowcontrol_nominal_limit_seats{priority_level="busy"} 10"#,
        r#"apiserver_flowcontrol_dispatched_requests_total{flow_schema="busy",priority_level="busy"} 10"#,
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_is_counted_and_frees_its_place() {
    let (controller, telemetry) = busy(10);
    let held = fill(&controller, "u");
    let waiting = get(&controller, "u", "busy").admission.unwrap();
    let mut next = get(&controller, "u", "busy").admission.unwrap();
    assert_eq!(waiting.give_up().retry_after, 1);
    drop(held);
    assert_eq!(next.dispatched().now_or_never(), Some(()));
    let text = String::from_utf8(telemetry.text()).unwrap();
    assert!(text.contains(r#"priority_level="busy",reason="time-out"} 1"#), "{text}");
    assert!(
        text.contains(r#"request_wait_duration_seconds_count{execute="false",flow_schema="busy""#),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_task_gives_seats_of_slow_requests_to_waiting_ones() {
    let (controller, _) = busy(10);
    let _slow = fill(&controller, "u");
    let task = tokio::spawn(controller.clone().run());
    let mut waiting = get(&controller, "u", "busy").admission.unwrap();
    let start = tokio::time::Instant::now();
    waiting.dispatched().await;
    assert_eq!(start.elapsed().as_secs(), 5);
    task.abort();
}
