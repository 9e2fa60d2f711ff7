//! The metrics of a level after requests with every possible outcome.

use super::*;
use std::collections::BTreeSet;

const SCHEMA: &[&str] = &["flow_schema", "priority_level"];
const LEVEL: &[&str] = &["priority_level"];
const PHASE: &[&str] = &["phase", "priority_level"];
const KIND: &[&str] = &["phase", "request_kind"];
const BOUND: &[&str] = &["bound", "priority_level"];
const REASON: &[&str] = &["flow_schema", "priority_level", "reason"];
const TYPE: &[&str] = &["flow_schema", "priority_level", "type"];
const EXECUTE: &[&str] = &["execute", "flow_schema", "priority_level"];

/// Upstream's families with their types and labels (`k8s.io/apiserver/pkg/util/flowcontrol/metrics`), without
/// the prefix. `epoch_advance_total` is missing: the meter is never wound back.
const FAMILIES: [(&str, &str, &[&str]); 31] = [
    ("current_executing_requests", "gauge", SCHEMA),
    ("current_executing_seats", "gauge", SCHEMA),
    ("current_inqueue_requests", "gauge", SCHEMA),
    ("current_inqueue_seats", "gauge", SCHEMA),
    ("current_limit_seats", "gauge", LEVEL),
    ("current_r", "gauge", LEVEL),
    ("demand_seats", "histogram", LEVEL),
    ("demand_seats_average", "gauge", LEVEL),
    ("demand_seats_high_watermark", "gauge", LEVEL),
    ("demand_seats_smoothed", "gauge", LEVEL),
    ("demand_seats_stdev", "gauge", LEVEL),
    ("dispatch_r", "gauge", LEVEL),
    ("dispatched_requests_total", "counter", SCHEMA),
    ("latest_s", "gauge", LEVEL),
    ("lower_limit_seats", "gauge", LEVEL),
    ("next_discounted_s_bounds", "gauge", BOUND),
    ("next_s_bounds", "gauge", BOUND),
    ("nominal_limit_seats", "gauge", LEVEL),
    ("priority_level_request_utilization", "histogram", PHASE),
    ("priority_level_seat_utilization", "histogram", PHASE),
    ("read_vs_write_current_requests", "histogram", KIND),
    ("rejected_requests_total", "counter", REASON),
    ("request_dispatch_no_accommodation_total", "counter", SCHEMA),
    ("request_execution_seconds", "histogram", TYPE),
    ("request_queue_length_after_enqueue", "histogram", SCHEMA),
    ("request_wait_duration_seconds", "histogram", EXECUTE),
    ("seat_fair_frac", "gauge", &[]),
    ("target_seats", "gauge", LEVEL),
    ("upper_limit_seats", "gauge", LEVEL),
    ("watch_count_samples", "histogram", SCHEMA),
    ("work_estimated_seats", "histogram", SCHEMA),
];

/// Lists of these objects take ten seats.
struct Large;

impl ObjectCounts for Large {
    fn stored(&self, _: &str, _: &str) -> Option<StoredObjects> {
        Some(StoredObjects {
            count: 1_000,
            average_bytes: 1_000,
        })
    }
}

fn enter(controller: &FlowController, method: Method, uri: &str) -> Result<Permit, TooMany> {
    let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
    let user = Arc::new(UserInfo::system("u", &["busy"]));
    controller.enter(&user, &Arc::new(info), "").admission
}

/// The label names of a series of the level `busy`, or of a family without levels.
fn labels<'a>(text: &'a str, series: &str) -> Option<BTreeSet<&'a str>> {
    let of = |line: &'a str| {
        let rest = line.strip_prefix(series)?;
        let (labels, _) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}')?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let about_us = labels.contains(r#"priority_level="busy""#) || !labels.contains("priority_level=");
        let names = labels
            .split(',')
            .filter_map(|label| label.split_once('=').map(|(name, _)| name));
        about_us.then(|| names.collect())
    };
    text.lines().find_map(of)
}

#[tokio::test(start_paused = true)]
async fn every_family_has_upstreams_name_type_and_labels() {
    let telemetry = Telemetry::new();
    let controller = FlowController::new(200, mandatory(), Large, &telemetry);
    controller.digest(&[schema("busy", 100, "busy", "busy")], &[level("busy", 5, 1)]);
    let one = || enter(&controller, Method::GET, "/api/v1/namespaces/a/pods/p");
    let list = || enter(&controller, Method::GET, "/api/v1/namespaces/a/pods").unwrap();
    // 95 of 100 seats are taken, so a list has to wait for more seats than are free.
    let mut held: Vec<Permit> = (0..95).map(|_| one().unwrap()).collect();
    let waiting = list();
    assert!(waiting.is_waiting());
    let gives_up = list();
    gives_up.give_up();
    let mut queued = Vec::new();
    while let Ok(permit) = one() {
        queued.push(permit);
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    controller.rebalance();
    let text = String::from_utf8(telemetry.text()).unwrap();
    // While requests wait.
    for bounds in ["next_s_bounds", "next_discounted_s_bounds"] {
        assert!(labels(&text, &name(bounds)).is_some(), "{bounds} in {text}");
    }
    held.clear();
    drop((queued, waiting));
    let info = RequestInfo::resolve(&Method::GET, &"/api/v1/pods?watch=1".parse().unwrap()).unwrap();
    let _watch = controller.register_watch(&info, "watch=1").unwrap();
    drop(enter(&controller, Method::GET, "/api/v1/pods?watch=1").unwrap());
    drop(enter(&controller, Method::POST, "/api/v1/namespaces/a/pods").unwrap());

    let text = String::from_utf8(telemetry.text()).unwrap();
    for (family, kind, expected) in FAMILIES {
        let family = name(family);
        assert!(
            text.contains(&format!("# TYPE {family} {kind}\n")),
            "{family} is not a {kind} in {text}"
        );
        let series = if kind == "histogram" {
            family.clone() + "_count"
        } else {
            family.clone()
        };
        let found = labels(&text, &series);
        assert_eq!(found, Some(expected.iter().copied().collect()), "{family} in {text}");
    }
    let known: BTreeSet<String> = FAMILIES.iter().map(|(family, ..)| name(family)).collect();
    let shown = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let others: Vec<&str> = shown
        .filter(|family| family.starts_with("apiserver_flowcontrol_") && !known.contains(*family))
        .collect();
    assert!(others.is_empty(), "upstream does not have {others:?}");
}

fn name(last: &str) -> String {
    format!("apiserver_flowcontrol_{last}")
}
