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
        &[
            "metadata.labels",
            "spec.unschedulable",
            "status.{nodeInfo,addresses}",
            "status.conditions.{type,status}",
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
        &[
            "{firstTimestamp,lastTimestamp,eventTime,series,involvedObject,source}",
            "{reportingComponent,reportingInstance,type,reason,message,count}",
        ],
        |o| {
            let first = match o.get("firstTimestamp") {
                Value::Null => since(o.get("eventTime")),
                t => since(t),
            };
            let last = match (o.at(&["series", "lastObservedTime"]), o.get("lastTimestamp")) {
                // A series overrides `lastTimestamp`; events.k8s.io events have neither and show their
                // `eventTime`.
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
