//! Tables of the core group.

use super::cells::{age, condition, first_three, human_duration, labels, name, none_if_empty, since};
use super::text::*;
use super::{Heading, table};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;
use crate::registry::resource::Columns;

const N: Heading = ("Name", "string", 0, NAME);
const A: Heading = ("Age", "string", 0, AGE);

pub(crate) fn namespaces() -> Columns {
    table(&[N, ("Status", "string", 0, NAMESPACE_STATUS), A], |o| {
        vec![name(o), o.at(&["status", "phase"]).clone(), age(o)]
    })
}

fn count(map: &Value) -> i64 {
    map.as_object().map_or(0, |m| m.len() as i64)
}

pub(crate) fn config_maps() -> Columns {
    table(&[N, ("Data", "string", 0, CONFIGMAP_DATA), A], |o| {
        vec![
            name(o),
            (count(o.get("data")) + count(o.get("binaryData"))).into(),
            age(o),
        ]
    })
}

pub(crate) fn secrets() -> Columns {
    table(
        &[
            N,
            ("Type", "string", 0, SECRET_TYPE),
            ("Data", "string", 0, SECRET_DATA),
            A,
        ],
        |o| vec![name(o), o.str_at(&["type"]).into(), count(o.get("data")).into(), age(o)],
    )
}

pub(crate) fn service_accounts() -> Columns {
    table(&[N, A], |o| vec![name(o), age(o)])
}

pub(crate) fn services() -> Columns {
    table(
        &[
            N,
            ("Type", "string", 0, SERVICE_TYPE),
            ("Cluster-IP", "string", 0, SERVICE_IP),
            ("External-IP", "string", 0, SERVICE_EXTERNAL),
            ("Port(s)", "string", 0, SERVICE_PORTS),
            A,
            ("Selector", "string", 1, SERVICE_SELECTOR),
        ],
        |o| {
            let spec = o.get("spec");
            let ip = strings(spec.get("clusterIPs")).first().copied().unwrap_or("<none>");
            let ports: Vec<String> = spec
                .get("ports")
                .items()
                .iter()
                .map(|p| {
                    let port = p.get("port").as_i64().unwrap_or(0);
                    let protocol = p.str_at(&["protocol"]);
                    match p.get("nodePort").as_i64() {
                        Some(np) if np > 0 => format!("{port}:{np}/{protocol}"),
                        _ => format!("{port}/{protocol}"),
                    }
                })
                .collect();
            vec![
                name(o),
                spec.str_at(&["type"]).into(),
                ip.into(),
                external_ips(o).into(),
                none_if_empty(ports.join(",")).into(),
                age(o),
                labels(spec.get("selector")).into(),
            ]
        },
    )
}

fn external_ips(o: &Value) -> String {
    let said = strings(o.at(&["spec", "externalIPs"])).join(",");
    match o.str_at(&["spec", "type"]) {
        "ClusterIP" | "NodePort" => none_if_empty(said),
        "LoadBalancer" => {
            let ingress = o.at(&["status", "loadBalancer", "ingress"]).items();
            let mut given: Vec<&str> = ingress
                .iter()
                .map(|i| match i.str_at(&["ip"]) {
                    "" => i.str_at(&["hostname"]),
                    ip => ip,
                })
                .filter(|s| !s.is_empty())
                .collect();
            given.sort_unstable();
            given.dedup();
            let given = given.join(",");
            match (given.is_empty(), said.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => said,
                (false, true) => given,
                (false, false) => format!("{given},{said}"),
            }
        }
        "ExternalName" => o.str_at(&["spec", "externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

pub(crate) fn endpoints() -> Columns {
    table(&[N, ("Endpoints", "string", 0, ""), A], |o| {
        vec![name(o), endpoints_cell(o).into(), age(o)]
    })
}

fn endpoints_cell(o: &Value) -> String {
    let subsets = o.get("subsets").items();
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for s in subsets {
        let ips = || s.get("addresses").items().iter().map(|a| a.str_at(&["ip"]));
        let ports = s.get("ports").items();
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for p in ports {
            let port = p.get("port").as_i64().unwrap_or(0);
            all.extend(ips().map(|ip| {
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            }));
        }
    }
    first_three(&all, "")
}

pub(crate) fn nodes() -> Columns {
    table(
        &[
            N,
            ("Status", "string", 0, NODE_STATUS),
            ("Roles", "string", 0, NODE_ROLES),
            A,
            ("Version", "string", 0, NODE_VERSION),
            ("Internal-IP", "string", 1, NODE_ADDRESSES),
            ("External-IP", "string", 1, NODE_ADDRESSES),
            ("OS-Image", "string", 1, NODE_OS),
            ("Kernel-Version", "string", 1, NODE_KERNEL),
            ("Container-Runtime", "string", 1, NODE_RUNTIME),
        ],
        |o| {
            let mut status = match condition(o, "Ready") {
                None => "Unknown".to_owned(),
                Some(c) if c.str_at(&["status"]) == "True" => "Ready".to_owned(),
                Some(_) => "NotReady".to_owned(),
            };
            if o.at(&["spec", "unschedulable"]).as_bool() == Some(true) {
                status.push_str(",SchedulingDisabled");
            }
            let info = |key: &str| o.str_at(&["status", "nodeInfo", key]);
            let known = |s: &str| if s.is_empty() { "<unknown>" } else { s }.to_owned();
            let mut kernel = known(info("kernelVersion"));
            if !info("kernelVersion").is_empty() && !info("architecture").is_empty() {
                kernel = format!("{kernel} ({})", info("architecture"));
            }
            vec![
                name(o),
                status.into(),
                roles(o).into(),
                age(o),
                info("kubeletVersion").into(),
                address(o, "InternalIP").into(),
                address(o, "ExternalIP").into(),
                known(info("osImage")).into(),
                kernel.into(),
                known(info("containerRuntimeVersion")).into(),
            ]
        },
    )
}

fn roles(o: &Value) -> String {
    let mut all: Vec<&str> = Vec::new();
    for (k, v) in o
        .at(&["metadata", "labels"])
        .as_object()
        .into_iter()
        .flat_map(|m| m.iter())
    {
        if let Some(role) = k.strip_prefix("node-role.kubernetes.io/").filter(|r| !r.is_empty()) {
            all.push(role);
        } else if k == "kubernetes.io/role" {
            all.extend(v.as_str().filter(|s| !s.is_empty()));
        }
    }
    all.sort_unstable();
    all.dedup();
    none_if_empty(all.join(","))
}

fn address(o: &Value, kind: &str) -> String {
    let all = o.at(&["status", "addresses"]).items();
    let found = all.iter().find(|a| a.str_at(&["type"]) == kind);
    found.map_or("<none>", |a| a.str_at(&["address"])).to_owned()
}

pub(crate) fn events() -> Columns {
    table(
        &[
            ("Last Seen", "string", 0, EVENT_LAST),
            ("Type", "string", 0, EVENT_TYPE),
            ("Reason", "string", 0, EVENT_REASON),
            ("Object", "string", 0, EVENT_OBJECT),
            ("Subobject", "string", 1, EVENT_SUBOBJECT),
            ("Source", "string", 1, EVENT_SOURCE),
            ("Message", "string", 0, EVENT_MESSAGE),
            ("First Seen", "string", 1, EVENT_FIRST),
            ("Count", "string", 1, EVENT_COUNT),
            ("Name", "string", 1, NAME),
        ],
        |o| {
            let first = match o.get("firstTimestamp") {
                Value::Null => since(o.get("eventTime")),
                t => since(t),
            };
            let last = match (o.at(&["series", "lastObservedTime"]), o.get("lastTimestamp")) {
                (Value::Null, Value::Null) => first.clone(),
                (Value::Null, t) | (t, _) => since(t),
            };
            let target = match o.str_at(&["involvedObject", "kind"]) {
                "" => o.str_at(&["involvedObject", "name"]).to_owned(),
                kind => format!("{}/{}", kind.to_lowercase(), o.str_at(&["involvedObject", "name"])),
            };
            let (component, host) = match o.str_at(&["source", "component"]) {
                "" => (o.str_at(&["reportingComponent"]), o.str_at(&["reportingInstance"])),
                c => (c, o.str_at(&["source", "host"])),
            };
            let source = if host.is_empty() {
                component.to_owned()
            } else {
                format!("{component}, {host}")
            };
            let count = o
                .at(&["series", "count"])
                .as_i64()
                .or(o.get("count").as_i64())
                .unwrap_or(0);
            vec![
                last.into(),
                o.str_at(&["type"]).into(),
                o.str_at(&["reason"]).into(),
                target.into(),
                o.str_at(&["involvedObject", "fieldPath"]).into(),
                source.into(),
                o.str_at(&["message"]).trim().into(),
                first.into(),
                count.max(1).into(),
                name(o),
            ]
        },
    )
}

pub(crate) fn pods() -> Columns {
    table(
        &[
            N,
            ("Ready", "string", 0, POD_READY),
            ("Status", "string", 0, POD_STATUS),
            ("Restarts", "string", 0, POD_RESTARTS),
            A,
            ("IP", "string", 1, POD_IP),
            ("Node", "string", 1, POD_NODE),
            ("Nominated Node", "string", 1, POD_NOMINATED),
            ("Readiness Gates", "string", 1, POD_GATES),
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
    fn a_service_row_is_the_recorded_one() {
        let o = json!({"metadata": {"name": "one"}, "spec": {"type": "ClusterIP", "clusterIPs": ["10.0.0.9"],
                       "ports": [{"port": 80, "protocol": "TCP"}], "selector": {"app": "demo"}}});
        assert_eq!(
            cells(&services(), &o),
            [
                r#""one""#,
                r#""ClusterIP""#,
                r#""10.0.0.9""#,
                r#""<none>""#,
                r#""80/TCP""#,
                r#""<unknown>""#,
                r#""app=demo""#
            ]
        );
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

    #[test]
    fn a_bare_node_is_unknown() {
        let o = json!({"metadata": {"name": "n"}, "spec": {}, "status": {"nodeInfo": {}}});
        assert_eq!(
            cells(&nodes(), &o)[1..],
            [
                "Unknown",
                "<none>",
                "<unknown>",
                "",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]
            .map(crate::apimachinery::field::quote)
        );
    }

    #[test]
    fn ready_addresses_are_counted_and_cut() {
        assert_eq!(endpoints_cell(&json!({})), "<none>");
        assert_eq!(
            endpoints_cell(&json!({"subsets": [{"notReadyAddresses": [{"ip": "1.1.1.1"}]}]})),
            ""
        );
        let o = json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}], "ports": [{"port": 1}, {"port": 2}]}]});
        assert_eq!(endpoints_cell(&o), "1.1.1.1:1,[::1]:1,1.1.1.1:2 + 1 more...");
    }
}
