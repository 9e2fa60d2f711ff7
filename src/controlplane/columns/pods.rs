//! The table of pods, whose status is read out of their containers.

use super::cells::{age, condition, human_duration, name, none_if_empty};
use super::table;
use super::text::*;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::registry::resource::Columns;

pub(crate) fn pods() -> Columns {
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
            "status.initContainerStatuses.{name,restartCount,started,ready,state}",
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

/// Ready and all containers, the status word, the restarts.
fn pod_summary(o: &Value) -> (usize, usize, String, String) {
    let status = o.get("status");
    let is_sidecar = |c: &&Value| c.str_at(&["restartPolicy"]) == "Always";
    let init_specs = o.at(&["spec", "initContainers"]).items();
    let total = o.at(&["spec", "containers"]).items().len() + init_specs.iter().filter(is_sidecar).count();
    let mut reason = match status.str_at(&["reason"]) {
        "" => status.str_at(&["phase"]).to_owned(),
        r => r.to_owned(),
    };
    if condition(o, "PodScheduled").is_some_and(|c| c.str_at(&["reason"]) == "SchedulingGated") {
        reason = "SchedulingGated".to_owned();
    }
    let mut ready = 0;
    let mut restarts = 0;
    let mut last: Option<&str> = None;
    let mut initializing = false;
    for (i, c) in status.get("initContainerStatuses").items().iter().enumerate() {
        let spec = init_specs.iter().find(|s| s.str_at(&["name"]) == c.str_at(&["name"]));
        let sidecar = spec.as_ref().is_some_and(is_sidecar);
        restarts += c.get("restartCount").as_i64().unwrap_or(0);
        let started = sidecar && c.get("started").as_bool() == Some(true);
        if started && c.get("ready").as_bool() == Some(true) {
            ready += 1;
        }
        let ended = c.at(&["state", "terminated"]);
        if initializing || started || (!ended.is_null() && ended.get("exitCode").as_i64() == Some(0)) {
            continue;
        }
        let waiting = c.str_at(&["state", "waiting", "reason"]);
        reason = if !ended.is_null() {
            format!("Init:{}", ended_text(ended))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", init_specs.len())
        };
        initializing = true;
    }
    if !initializing {
        restarts = 0;
        let mut running = false;
        for c in status.get("containerStatuses").items().iter().rev() {
            restarts += c.get("restartCount").as_i64().unwrap_or(0);
            let finished = c.at(&["lastState", "terminated", "finishedAt"]).as_str();
            last = last.max(finished);
            let (waiting, ended) = (
                c.str_at(&["state", "waiting", "reason"]),
                c.at(&["state", "terminated"]),
            );
            if !waiting.is_empty() {
                reason = waiting.to_owned();
            } else if !ended.is_null() {
                reason = ended_text(ended);
            } else if c.get("ready").as_bool() == Some(true) && !c.at(&["state", "running"]).is_null() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" && running {
            let is_ready = condition(o, "Ready").is_some_and(|c| c.str_at(&["status"]) == "True");
            reason = if is_ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if o.is_being_deleted() {
        if status.str_at(&["reason"]) == "NodeLost" {
            reason = "Unknown".to_owned();
        } else if !matches!(status.str_at(&["phase"]), "Succeeded" | "Failed") {
            reason = "Terminating".to_owned();
        }
    }
    let restarts = match last.and_then(|t| crate::apimachinery::time::parse(t).ok()) {
        Some(t) if restarts > 0 => {
            let ago = (::time::OffsetDateTime::now_utc() - t).whole_seconds();
            format!("{restarts} ({} ago)", human_duration(ago))
        }
        _ => restarts.to_string(),
    };
    (ready, total, reason, restarts)
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
    use crate::json;

    fn cells(c: &Columns, o: &Value) -> Vec<String> {
        (c.cells)(o).iter().map(crate::apimachinery::field::show).collect()
    }

    #[test]
    fn a_pod_row_shows_the_worst() {
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
}
