//! Columns of pods, following `printPod` in upstream's `pkg/printers/internalversion/printers.go`.
//!
//! Entry point: [`pods`]. The `Status` cell is derived from the container statuses in `pod_summary`.

use super::cells::{age, condition, name, none_if_empty};
use super::table;
use super::text::*;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::table::human_duration;
use crate::apimachinery::value::Value;
use crate::json;
use crate::registry::resource::Columns;
use std::collections::HashMap;

pub(crate) fn pods() -> Columns {
    Columns {
        conditions: completed,
        ..cells_of_pods()
    }
}

/// The row condition `Completed` of a pod in a terminal phase; null for all others.
fn completed(o: &Value) -> Value {
    let phase = o.str_at(&["status", "phase"]);
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Value::Null,
    };
    json!([{"type": "Completed", "status": "True", "reason": (phase), "message": (message)}])
}

fn cells_of_pods() -> Columns {
    table(
        &[
            ("Name", "string", 0, NAME),
            ("Ready", "string", 0, POD_READY),
            ("Status", "string", 0, POD_STATUS),
            ("Restarts", "string", 0, POD_RESTARTS),
            ("Age", "string", 0, AGE),
            ("IP", "string", 1, POD_IP),
            ("Node", "string", 1, POD_NODE),
            ("Nominated Node", "string", 1, POD_NOMINATED),
            ("Readiness Gates", "string", 1, POD_GATES),
        ],
        &[
            "metadata.deletionTimestamp",
            "spec.{containers.#,nodeName,readinessGates}",
            "spec.initContainers.{name,restartPolicy}",
            "status.{reason,phase,podIP,nominatedNodeName}",
            "status.conditions.{type,status,reason}",
            "status.initContainerStatuses.{name,restartCount,started,ready,state,lastState.terminated.finishedAt}",
            "status.containerStatuses.{restartCount,ready,state,lastState.terminated.finishedAt}",
        ],
        |o| {
            let (ready, total, status, restarts) = pod_summary(o);
            let none = |s: &str| none_if_empty(s.to_owned());
            let gates = o.at(&["spec", "readinessGates"]).items();
            let open = gates
                .iter()
                .filter(|g| condition(o, g.str_at(&["conditionType"])).is_some_and(|c| c.str_at(&["status"]) == "True"))
                .count();
            let gates = if gates.is_empty() {
                "<none>".to_owned()
            } else {
                format!("{open}/{}", gates.len())
            };
            vec![
                name(o),
                format!("{ready}/{total}").into(),
                status.into(),
                restarts.into(),
                age(o),
                none(o.str_at(&["status", "podIP"])).into(),
                none(o.str_at(&["spec", "nodeName"])).into(),
                none(o.str_at(&["status", "nominatedNodeName"])).into(),
                gates.into(),
            ]
        },
    )
}

/// Returns the number of ready containers, the number of all containers, the status and the restarts.
/// Sidecars (init containers with `restartPolicy: Always`) count as containers.
fn pod_summary(o: &Value) -> (usize, usize, String, String) {
    let status = o.get("status");
    let is_sidecar = |c: &&Value| c.str_at(&["restartPolicy"]) == "Always";
    let init = o.at(&["spec", "initContainers"]).items();
    let total = o.at(&["spec", "containers"]).items().len() + init.iter().filter(is_sidecar).count();
    // Reversed, so that the first of several entries with one name wins.
    let init_specs: HashMap<&str, &Value> = init.iter().rev().map(|s| (s.str_at(&["name"]), s)).collect();
    let mut reason = match status.str_at(&["reason"]) {
        "" => status.str_at(&["phase"]).to_owned(),
        r => r.to_owned(),
    };
    // The phase is `Pending` both for gated pods and for pods that do not fit on any node.
    if condition(o, "PodScheduled").is_some_and(|c| c.str_at(&["reason"]) == "SchedulingGated") {
        reason = "SchedulingGated".to_owned();
    }
    let mut ready = 0;
    let mut all = Restarts::default();
    let mut of_sidecars = Restarts::default();
    let mut initializing = false;
    for (i, c) in status.get("initContainerStatuses").items().iter().enumerate() {
        let spec = init_specs.get(c.str_at(&["name"])).copied();
        let sidecar = spec.is_some_and(|s| is_sidecar(&s));
        // Counted before the checks below: restarts of finished init containers are printed too.
        all.add(c);
        if sidecar {
            of_sidecars.add(c);
        }
        let ended = c.at(&["state", "terminated"]);
        // Skip init containers that are done; the first unfinished one determines the status.
        if !ended.is_null() && ended.get("exitCode").as_i64().unwrap_or(0) == 0 {
            continue;
        }
        // A started sidecar does not hold up initialization, even if it is not ready yet.
        if sidecar && c.get("started").as_bool() == Some(true) {
            ready += usize::from(c.get("ready").as_bool() == Some(true));
            continue;
        }
        let waiting = c.str_at(&["state", "waiting", "reason"]);
        reason = if !ended.is_null() {
            format!("Init:{}", ended_text(ended))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            // Containers before this one are done, so its index is the number of finished ones.
            format!("Init:{i}/{}", init.len())
        };
        initializing = true;
        break;
    }
    // Once initialized, restarts of plain init containers are no longer counted.
    if !initializing || is_true(o, "Initialized") {
        all = of_sidecars;
        let mut running = false;
        let mut failure = None;
        // Iterated from the last, as upstream, so that the first container's reason wins.
        for c in status.get("containerStatuses").items().iter().rev() {
            all.add(c);
            let (waiting, ended) = (
                c.str_at(&["state", "waiting", "reason"]),
                c.at(&["state", "terminated"]),
            );
            if !waiting.is_empty() {
                reason = waiting.to_owned();
            } else if !ended.is_null() {
                reason = ended_text(ended);
                if ended.get("exitCode").as_i64().unwrap_or(0) != 0 {
                    failure = Some(reason.clone());
                }
            } else if c.get("ready").as_bool() == Some(true) && !c.at(&["state", "running"]).is_null() {
                running = true;
                ready += 1;
            }
        }
        // The reason may stem from one finished container although others still run or have failed.
        if reason == "Completed" {
            reason = match failure {
                _ if running && is_true(o, "Ready") => "Running".to_owned(),
                Some(failure) => failure,
                None if running => "NotReady".to_owned(),
                None => reason,
            };
        }
    }
    if o.is_being_deleted() {
        // The kubelet is unreachable: whether the pod still runs is unknown.
        if status.str_at(&["reason"]) == "NodeLost" {
            reason = "Unknown".to_owned();
        } else if !matches!(status.str_at(&["phase"]), "Succeeded" | "Failed") {
            reason = "Terminating".to_owned();
        }
    }
    (ready, total, reason, all.text())
}

/// The sum of container restarts, and the latest termination time.
#[derive(Default)]
struct Restarts<'a> {
    count: i64,
    last: Option<&'a str>,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, c: &'a Value) {
        self.count += c.get("restartCount").as_i64().unwrap_or(0);
        // Compared as strings: decoding normalizes timestamps to UTC with whole seconds, so they sort like times.
        self.last = self.last.max(c.at(&["lastState", "terminated", "finishedAt"]).as_str());
    }

    fn text(&self) -> String {
        match self.last.and_then(|t| crate::apimachinery::time::parse(t).ok()) {
            Some(t) if self.count != 0 => {
                let ago = (::time::OffsetDateTime::now_utc() - t).whole_seconds();
                format!("{} ({} ago)", self.count, human_duration(ago))
            }
            _ => self.count.to_string(),
        }
    }
}

fn is_true(o: &Value, kind: &str) -> bool {
    condition(o, kind).is_some_and(|c| c.str_at(&["status"]) == "True")
}

fn ended_text(ended: &Value) -> String {
    match (ended.str_at(&["reason"]), ended.get("signal").as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", ended.get("exitCode").as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(c: &Columns, o: &Value) -> Vec<String> {
        (c.cells)(o).iter().map(crate::apimachinery::field::show).collect()
    }

    #[test]
    fn waiting_container_determines_the_status() {
        let o = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "state": {"running": {}}, "restartCount": 2},
                {"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1}]}});
        assert_eq!(
            cells(&pods(), &o)[1..4],
            [r#""1/2""#, r#""CrashLoopBackOff""#, r#""3""#]
        );
        let new = json!({"metadata": {"name": "p"}, "spec": {"containers": [{}]}, "status": {"phase": "Pending"}});
        assert_eq!(cells(&pods(), &new)[1..4], [r#""0/1""#, r#""Pending""#, r#""0""#]);
    }

    #[test]
    fn finished_pod_row_has_a_completed_condition() {
        let conditions = |phase: &str| (pods().conditions)(&json!({"status": {"phase": (phase)}}));
        assert_eq!(
            conditions("Failed"),
            json!([{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}])
        );
        assert!(conditions("Running").is_null());
    }

    #[test]
    fn only_sidecar_restarts_count_after_initialization() {
        let o = json!({"metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a"}],
                     "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
            "status": {"phase": "Running",
                "initContainerStatuses": [
                    {"name": "i", "restartCount": 7, "state": {"terminated": {"exitCode": 0}}},
                    {"name": "s", "restartCount": 2, "started": true, "ready": true, "state": {"running": {}}}],
                "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}, "restartCount": 1}]}});
        assert_eq!(cells(&pods(), &o)[1..4], [r#""2/2""#, r#""Running""#, r#""3""#]);
    }

    #[test]
    fn failed_container_takes_precedence_over_completed() {
        let o = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                {"name": "b", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}});
        assert_eq!(cells(&pods(), &o)[2], r#""Error""#);
    }

    #[test]
    fn restarts_of_later_init_containers_are_not_counted() {
        let o = json!({"metadata": {"name": "p"},
            "spec": {"containers": [{}], "initContainers": [{"name": "i"}, {"name": "k"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                {"name": "k", "restartCount": 5, "state": {"waiting": {"reason": "PodInitializing"}}}]}});
        assert_eq!(
            cells(&pods(), &o)[1..4],
            [r#""0/1""#, r#""Init:CrashLoopBackOff""#, r#""1""#]
        );
    }
}
