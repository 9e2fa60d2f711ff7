//! Columns of the kinds of networking.k8s.io, policy and certificates.k8s.io.

use super::cells::{age, name, none_if_empty};
use super::storage::default_name;
use super::text::{AGE, NAME};
use super::words::*;
use super::{Heading, table};
use crate::apimachinery::selector::labels::LabelSelector as Selector;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;
use crate::registry::resource::Columns;

const N: Heading = ("Name", "string", 0, NAME);
const A: Heading = ("Age", "string", 0, AGE);

pub(crate) fn ingresses() -> Columns {
    let headings = [
        N,
        ("Class", "string", 0, INGRESS_CLASS),
        ("Hosts", "string", 0, INGRESS_HOSTS),
        ("Address", "string", 0, INGRESS_ADDRESS),
        ("Ports", "string", 0, INGRESS_PORTS),
        A,
    ];
    table(
        &headings,
        &[
            "spec.{tls.#,ingressClassName,rules.host}",
            "status.loadBalancer.ingress.{ip,hostname}",
        ],
        |o| {
            // An Ingress has no ports of its own: upstream prints the conventional HTTP and HTTPS ones.
            let ports = if o.at(&["spec", "tls"]).items().is_empty() {
                "80"
            } else {
                "80, 443"
            };
            vec![
                name(o),
                o.at(&["spec", "ingressClassName"]).as_str().unwrap_or("<none>").into(),
                hosts(o).into(),
                load_balancer_addresses(o).into(),
                ports.into(),
                age(o),
            ]
        },
    )
}

fn hosts(o: &Value) -> String {
    const SHOWN: usize = 3;
    let rules = o.at(&["spec", "rules"]).items();
    let hosts = rules.iter().map(|r| r.str_at(&["host"])).enumerate();
    let shown: Vec<(usize, &str)> = hosts.filter(|(_, h)| !h.is_empty()).take(SHOWN).collect();
    let text = shown.iter().map(|(_, h)| *h).collect::<Vec<_>>().join(",");
    // As upstream, any rule after the third host is left over, one without a host too, and the number is that of all
    // rules but three.
    let is_more = shown.get(SHOWN - 1).is_some_and(|(i, _)| i + 1 < rules.len());
    match shown.len() {
        0 => "*".to_owned(),
        _ if is_more => format!("{text} + {} more...", rules.len() - SHOWN),
        _ => text,
    }
}

/// The addresses of a load balancer. Upstream collects them in a set, which prints sorted and without
/// duplicates.
pub(super) fn load_balancer_addresses(o: &Value) -> String {
    let mut all: Vec<&str> = o
        .at(&["status", "loadBalancer", "ingress"])
        .items()
        .iter()
        .map(|i| match i.str_at(&["ip"]) {
            "" => i.str_at(&["hostname"]),
            ip => ip,
        })
        .filter(|s| !s.is_empty())
        .collect();
    all.sort_unstable();
    all.dedup();
    all.join(",")
}

pub(crate) fn ingress_classes() -> Columns {
    let headings = [
        N,
        ("Controller", "string", 0, CLASS_CONTROLLER),
        ("Parameters", "string", 0, CLASS_PARAMETERS),
        A,
    ];
    table(
        &headings,
        &["metadata.annotations", "spec.{controller,parameters}"],
        |o| {
            let p = o.at(&["spec", "parameters"]);
            let parameters = match (p.is_null(), p.str_at(&["apiGroup"])) {
                (true, _) => "<none>".to_owned(),
                (false, "") => format!("{}/{}", p.str_at(&["kind"]), p.str_at(&["name"])),
                (false, group) => format!("{}.{group}/{}", p.str_at(&["kind"]), p.str_at(&["name"])),
            };
            vec![
                default_name(o, &["ingressclass.kubernetes.io/is-default-class"]),
                o.str_at(&["spec", "controller"]).into(),
                parameters.into(),
                age(o),
            ]
        },
    )
}

pub(crate) fn network_policies() -> Columns {
    table(
        &[N, ("Pod-Selector", "string", 0, NETPOL_POD_SELECTOR), A],
        &["spec.podSelector"],
        |o| {
            let selector = match Selector::from_object(o.at(&["spec", "podSelector"])) {
                Err(_) => "<error>".to_owned(),
                // An empty selector selects every pod of the namespace, yet upstream prints `<none>`.
                Ok(s) => none_if_empty(s.to_string()),
            };
            vec![name(o), selector.into(), age(o)]
        },
    )
}

pub(crate) fn ip_addresses() -> Columns {
    table(&[N, ("ParentRef", "string", 0, IP_PARENT)], &["spec.parentRef"], |o| {
        let p = o.at(&["spec", "parentRef"]);
        let mut text = p.str_at(&["resource"]).to_lowercase();
        match p.str_at(&["group"]) {
            "" => {}
            group => text = format!("{text}.{group}"),
        }
        for part in [p.str_at(&["namespace"]), p.str_at(&["name"])] {
            if !part.is_empty() {
                text = format!("{text}/{part}");
            }
        }
        // Upstream's printer adds an age cell without a heading for it; rows must match.
        vec![name(o), none_if_empty(text).into(), age(o)]
    })
}

pub(crate) fn service_cidrs() -> Columns {
    table(&[N, ("CIDRs", "string", 0, CIDR_CIDRS), A], &["spec.cidrs"], |o| {
        vec![name(o), strings(o.at(&["spec", "cidrs"])).join(",").into(), age(o)]
    })
}

pub(crate) fn pod_disruption_budgets() -> Columns {
    let headings = [
        N,
        ("Min Available", "string", 0, PDB_MIN),
        ("Max Unavailable", "string", 0, PDB_MAX),
        ("Allowed Disruptions", "integer", 0, PDB_ALLOWED),
        A,
    ];
    table(
        &headings,
        &["spec.{minAvailable,maxUnavailable}", "status.disruptionsAllowed"],
        |o| {
            let amount = |key: &str| match o.at(&["spec", key]) {
                Value::Null => Value::from("N/A"),
                // The column is of type string, so counts are formatted like percentages.
                Value::Int(n) => n.to_string().into(),
                other => other.clone(),
            };
            let allowed = o.at(&["status", "disruptionsAllowed"]).as_i64().unwrap_or(0);
            vec![
                name(o),
                amount("minAvailable"),
                amount("maxUnavailable"),
                allowed.into(),
                age(o),
            ]
        },
    )
}

pub(crate) fn certificate_signing_requests() -> Columns {
    let headings = [
        N,
        A,
        ("SignerName", "string", 0, CSR_SIGNERNAME),
        ("Requestor", "string", 0, CSR_REQUESTOR),
        ("RequestedDuration", "string", 0, CSR_REQUESTEDDURATION),
        ("Condition", "string", 0, CSR_CONDITION),
    ];
    table(
        &headings,
        &[
            "spec.{expirationSeconds,signerName,username}",
            "status.{conditions.type,certificate}",
        ],
        |o| {
            let duration = match o.at(&["spec", "expirationSeconds"]).as_i64() {
                None => "<none>".to_owned(),
                Some(n) => crate::apimachinery::table::human_duration(n),
            };
            vec![
                name(o),
                age(o),
                none_if_empty(o.str_at(&["spec", "signerName"]).to_owned()).into(),
                o.str_at(&["spec", "username"]).into(),
                duration.into(),
                csr_condition(o).into(),
            ]
        },
    )
}

fn csr_condition(o: &Value) -> String {
    let has = |kind: &str| super::cells::condition(o, kind).is_some();
    // Denied comes first: objects from before the two became exclusive may hold both conditions.
    let mut text = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if !o.str_at(&["status", "certificate"]).is_empty() {
        text.push_str(",Issued");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn hosts_are_cut_after_three_entries() {
        let o = json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {}, {"host": "c"}, {"host": "d"}]}});
        assert_eq!(hosts(&o), "a,b,c + 2 more...");
        let o = json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {"host": "c"}, {}]}});
        assert_eq!(hosts(&o), "a,b,c + 1 more...");
        let o = json!({"spec": {"rules": [{"host": "a"}, {"host": "b"}, {}, {"host": "c"}]}});
        assert_eq!(hosts(&o), "a,b,c");
        assert_eq!(hosts(&json!({})), "*");
    }

    #[test]
    fn issued_request_prints_approved_and_issued() {
        let o = json!({"status": {"certificate": "eA==", "conditions": [{"type": "Approved"}]}});
        assert_eq!(csr_condition(&o), "Approved,Issued");
        assert_eq!(csr_condition(&json!({})), "Pending");
    }
}
