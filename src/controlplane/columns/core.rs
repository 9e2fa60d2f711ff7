//! Columns of the core group's kinds, except pods (`pods`), workloads and volumes.

use super::cells::{age, condition, first_three, labels, name, none_if_empty, since};
use super::network::load_balancer_addresses;
use super::text::*;
use super::words::ENDPOINTS_SUBSETS;
use super::{Heading, table};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;
use crate::registry::resource::Columns;

const N: Heading = ("Name", "string", 0, NAME);
const A: Heading = ("Age", "string", 0, AGE);

pub(crate) fn namespaces() -> Columns {
    table(
        &[N, ("Status", "string", 0, NAMESPACE_STATUS), A],
        &["status.phase"],
        |o| vec![name(o), o.at(&["status", "phase"]).clone(), age(o)],
    )
}

fn count(map: &Value) -> i64 {
    map.as_object().map_or(0, |m| m.len() as i64)
}

pub(crate) fn config_maps() -> Columns {
    table(
        &[N, ("Data", "string", 0, CONFIGMAP_DATA), A],
        // `.#` reads only the number of members: values may be a megabyte and need not be decoded.
        &["data.#", "binaryData.#"],
        |o| {
            vec![
                name(o),
                (count(o.get("data")) + count(o.get("binaryData"))).into(),
                age(o),
            ]
        },
    )
}

pub(crate) fn secrets() -> Columns {
    table(
        &[
            N,
            ("Type", "string", 0, SECRET_TYPE),
            ("Data", "string", 0, SECRET_DATA),
            A,
        ],
        &["type", "data.#"],
        |o| vec![name(o), o.str_at(&["type"]).into(), count(o.get("data")).into(), age(o)],
    )
}

pub(crate) fn service_accounts() -> Columns {
    table(&[N, A], &[], |o| vec![name(o), age(o)])
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
        &[
            "spec.{type,clusterIPs,externalIPs,externalName,selector}",
            "spec.ports.{port,protocol,nodePort}",
            "status.loadBalancer.ingress.{ip,hostname}",
        ],
        |o| {
            let spec = o.get("spec");
            // The primary address. A headless Service prints the `None` that its list holds.
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
    let external = strings(o.at(&["spec", "externalIPs"])).join(",");
    match o.str_at(&["spec", "type"]) {
        "ClusterIP" | "NodePort" => none_if_empty(external),
        // Upstream cuts long address lists only in narrow output; the server always generates wide rows.
        "LoadBalancer" => {
            let given = load_balancer_addresses(o);
            match (given.is_empty(), external.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => external,
                (false, true) => given,
                (false, false) => format!("{given},{external}"),
            }
        }
        "ExternalName" => o.str_at(&["spec", "externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

pub(crate) fn endpoints() -> Columns {
    table(
        &[N, ("Endpoints", "string", 0, ENDPOINTS_SUBSETS), A],
        &["subsets.addresses.ip", "subsets.ports.port"],
        |o| vec![name(o), endpoints_cell(o).into(), age(o)],
    )
}

fn endpoints_cell(o: &Value) -> String {
    let subsets = o.get("subsets").items();
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let mut all = Vec::new();
    for s in subsets {
        // Addresses that are not ready are left out, so a set of subsets may yield an empty cell.
        let ips = || s.get("addresses").items().iter().map(|a| a.str_at(&["ip"]));
        let ports = s.get("ports").items();
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        // Ports are the outer loop: which endpoints fall under `+ N more...` depends on the order.
        for p in ports {
            let port = p.get("port").as_i64().unwrap_or(0);
            all.extend(ips().map(|ip| {
                // As Go's `net.JoinHostPort`: brackets separate an IPv6 address from the port.
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            }));
        }
    }
    // `<none>` means no subsets; subsets without ready addresses print an empty cell, as upstream.
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
        &[
            "metadata.labels",
            "spec.unschedulable",
            "status.{nodeInfo,addresses}",
            "status.conditions.{type,status}",
        ],
        |o| {
            // No condition at all means that the kubelet has never reported.
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
        // Two conventions coexist: a label per role, and an older label whose value is the role.
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
        &[
            "{firstTimestamp,lastTimestamp,eventTime,series,involvedObject,source}",
            "{reportingComponent,reportingInstance,type,reason,message,count}",
        ],
        |o| {
            let first = match o.get("firstTimestamp") {
                Value::Null => since(o.get("eventTime")),
                t => since(t),
            };
            let last = match (o.get("series"), o.get("lastTimestamp")) {
                // A series overrides `lastTimestamp`; events.k8s.io events have neither and show their
                // `eventTime`.
                (Value::Null, Value::Null) => first.clone(),
                (Value::Null, t) => since(t),
                (series, _) => since(series.get("lastObservedTime")),
            };
            let kind = o.str_at(&["involvedObject", "kind"]).to_lowercase();
            let target = match o.str_at(&["involvedObject", "name"]) {
                "" => kind,
                name => format!("{kind}/{name}"),
            };
            // Events of events.k8s.io have a reporting controller instead of the legacy `source`. Each of the two
            // parts is replaced on its own.
            let source = |key: &str, other: &str| match o.str_at(&["source", key]) {
                "" => o.str_at(&[other]),
                text => text,
            };
            let component = source("component", "reportingComponent");
            let host = source("host", "reportingInstance");
            let source = if host.is_empty() {
                component.to_owned()
            } else {
                format!("{component}, {host}")
            };
            let count = match (o.get("series"), o.get("count").as_i64()) {
                // An event of events.k8s.io without a series has no count: it occurred once.
                (Value::Null, None | Some(0)) => 1,
                (Value::Null, Some(n)) => n,
                (series, _) => series.get("count").as_i64().unwrap_or(0),
            };
            vec![
                last.into(),
                o.str_at(&["type"]).into(),
                o.str_at(&["reason"]).into(),
                target.into(),
                o.str_at(&["involvedObject", "fieldPath"]).into(),
                source.into(),
                // Recorders often end messages with a newline, which would break the row in a terminal.
                o.str_at(&["message"]).trim().into(),
                first.into(),
                count.into(),
                name(o),
            ]
        },
    )
}

pub(crate) fn component_statuses() -> Columns {
    table(
        &[
            ("Name", "string", 0, NAME),
            ("Status", "string", 0, "Status of the component conditions"),
            ("Message", "string", 0, "Message of the component conditions"),
            ("Error", "string", 0, "Error of the component conditions"),
        ],
        &["conditions"],
        |o| {
            let conditions = o.get("conditions").items();
            let healthy = conditions.iter().find(|c| c.str_at(&["type"]) == "Healthy");
            let status = healthy.map_or("Unknown", |c| match c.str_at(&["status"]) {
                "True" => "Healthy",
                _ => "Unhealthy",
            });
            let text = |key: &str| Value::from(healthy.map_or("", |c| c.str_at(&[key])));
            vec![name(o), status.into(), text("message"), text("error")]
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn cells(c: &Columns, o: &Value) -> Vec<String> {
        (c.cells)(o).iter().map(crate::apimachinery::field::show).collect()
    }

    #[test]
    fn service_row_matches_the_recording() {
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
    fn node_without_status_prints_unknown() {
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
    fn parts_of_an_event_fall_back_independently() {
        let row = |o: Value| {
            let all = cells(&events(), &o);
            [3, 5, 8].map(|i| all[i].clone()).join(" ")
        };
        let kind =
            json!({"involvedObject": {"kind": "Pod"}, "source": {"component": "kubelet"}, "reportingInstance": "a"});
        assert_eq!(row(kind), r#""pod" "kubelet, a" 1"#);
        let name = json!({"involvedObject": {"name": "p"}, "reportingComponent": "kubelet", "source": {"host": "b"},
            "count": 5, "series": {}});
        assert_eq!(row(name), r#""/p" "kubelet, b" 0"#);
    }

    #[test]
    fn endpoints_print_only_ready_addresses_up_to_three() {
        assert_eq!(endpoints_cell(&json!({})), "<none>");
        assert_eq!(
            endpoints_cell(&json!({"subsets": [{"notReadyAddresses": [{"ip": "1.1.1.1"}]}]})),
            ""
        );
        let o = json!({"subsets": [{"addresses": [{"ip": "1.1.1.1"}, {"ip": "::1"}], "ports": [{"port": 1}, {"port": 2}]}]});
        assert_eq!(endpoints_cell(&o), "1.1.1.1:1,[::1]:1,1.1.1.1:2 + 1 more...");
    }
}
