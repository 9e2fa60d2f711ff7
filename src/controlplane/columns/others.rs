//! Columns of the smaller groups: coordination, discovery, RBAC, admission registration, flow control,
//! scheduling and API registration.

use super::cells::{age, condition, first_three, name, none_if_empty};
use super::text::*;
use super::words::*;
use super::{Heading, table};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::strings;
use crate::registry::resource::Columns;

const N: Heading = ("Name", "string", 0, NAME);
const A: Heading = ("Age", "string", 0, AGE);

/// Name and creation time: the default table converter, for kinds without a printer of their own upstream.
pub(crate) fn created_at() -> Columns {
    table(&[N, ("Created At", "date", 0, AGE)], &[], |o| {
        vec![name(o), o.at(&["metadata", "creationTimestamp"]).clone()]
    })
}

pub(crate) fn leases() -> Columns {
    table(
        &[N, ("Holder", "string", 0, LEASE_HOLDER), A],
        &["spec.holderIdentity"],
        |o| vec![name(o), o.str_at(&["spec", "holderIdentity"]).into(), age(o)],
    )
}

pub(crate) fn endpoint_slices() -> Columns {
    let headings = [
        N,
        ("AddressType", "string", 0, SLICE_ADDRESS_TYPE),
        ("Ports", "string", 0, SLICE_PORTS),
        ("Endpoints", "string", 0, SLICE_ENDPOINTS),
        A,
    ];
    table(
        &headings,
        &["addressType", "ports.{port,name}", "endpoints.addresses"],
        |o| {
            let ports: Vec<String> = o
                .get("ports")
                .items()
                .iter()
                .map(|p| match (p.get("port"), p.get("name").as_str()) {
                    (Value::Int(n), _) => n.to_string(),
                    // Defaulting sets the name to `""`, so a port without a number usually prints as an empty
                    // element; `*` is left for objects that were stored without a name.
                    (_, Some(name)) => name.to_owned(),
                    _ => "*".to_owned(),
                })
                .collect();
            let addresses: Vec<String> = o
                .get("endpoints")
                .items()
                .iter()
                .flat_map(|e| strings(e.get("addresses")))
                .map(str::to_owned)
                .collect();
            vec![
                name(o),
                o.str_at(&["addressType"]).into(),
                first_three(&ports, "<unset>").into(),
                first_three(&addresses, "<unset>").into(),
                age(o),
            ]
        },
    )
}

fn binding(headings: &[Heading]) -> Columns {
    table(
        headings,
        &["subjects.{kind,namespace,name}", "roleRef.{kind,name}"],
        |o| {
            let of = |kind: &str| {
                let all: Vec<String> = o
                    .get("subjects")
                    .items()
                    .iter()
                    .filter(|s| s.str_at(&["kind"]) == kind)
                    .map(|s| match kind {
                        // Users and groups are cluster-wide; only service accounts need a namespace to be
                        // identified.
                        "ServiceAccount" => format!("{}/{}", s.str_at(&["namespace"]), s.str_at(&["name"])),
                        _ => s.str_at(&["name"]).to_owned(),
                    })
                    .collect();
                all.join(", ")
            };
            let role = format!("{}/{}", o.str_at(&["roleRef", "kind"]), o.str_at(&["roleRef", "name"]));
            vec![
                name(o),
                role.into(),
                age(o),
                of("User").into(),
                of("Group").into(),
                of("ServiceAccount").into(),
            ]
        },
    )
}

pub(crate) fn cluster_role_bindings() -> Columns {
    binding(&[
        N,
        ("Role", "string", 0, CRB_ROLE),
        A,
        ("Users", "string", 1, CRB_USERS),
        ("Groups", "string", 1, CRB_GROUPS),
        ("ServiceAccounts", "string", 1, CRB_ACCOUNTS),
    ])
}

pub(crate) fn role_bindings() -> Columns {
    binding(&[
        N,
        ("Role", "string", 0, RB_ROLE),
        A,
        ("Users", "string", 1, "Users in the roleBinding"),
        ("Groups", "string", 1, "Groups in the roleBinding"),
        ("ServiceAccounts", "string", 1, "ServiceAccounts in the roleBinding"),
    ])
}

pub(crate) fn api_services() -> Columns {
    let headings = [
        N,
        ("Service", "string", 0, APISERVICE_SERVICE),
        ("Available", "string", 0, APISERVICE_AVAILABLE),
        A,
    ];
    table(
        &headings,
        &[
            "spec.service.{namespace,name}",
            "status.conditions.{type,status,reason}",
        ],
        |o| {
            let service = o.at(&["spec", "service"]);
            let service = if service.is_null() {
                // Without a service the server itself serves the group-version.
                "Local".to_owned()
            } else {
                format!("{}/{}", service.str_at(&["namespace"]), service.str_at(&["name"]))
            };
            let available = match condition(o, "Available") {
                None => "Unknown".to_owned(),
                Some(c) => match (c.str_at(&["status"]), c.str_at(&["reason"])) {
                    ("True", _) => "True".to_owned(),
                    (status, "") => status.to_owned(),
                    (status, reason) => format!("{status} ({reason})"),
                },
            };
            vec![name(o), service.into(), available.into(), age(o)]
        },
    )
}

pub(crate) fn webhooks() -> Columns {
    table(&[N, ("Webhooks", "integer", 0, WEBHOOKS), A], &["webhooks.#"], |o| {
        vec![name(o), (o.get("webhooks").items().len() as i64).into(), age(o)]
    })
}

fn param_kind(o: &Value) -> Value {
    let kind = o.at(&["spec", "paramKind"]);
    if kind.is_null() {
        return "<unset>".into();
    }
    format!("{}/{}", kind.str_at(&["apiVersion"]), kind.str_at(&["kind"])).into()
}

pub(crate) fn validating_policies() -> Columns {
    let headings = [
        N,
        ("Validations", "integer", 0, VAP_VALIDATIONS),
        ("ParamKind", "string", 0, POLICY_PARAM_KIND),
        A,
    ];
    table(&headings, &["spec.{validations.#,paramKind}"], |o| {
        let count = o.at(&["spec", "validations"]).items().len() as i64;
        vec![name(o), count.into(), param_kind(o), age(o)]
    })
}

pub(crate) fn mutating_policies() -> Columns {
    let headings = [
        N,
        ("Mutations", "integer", 0, MAP_MUTATIONS),
        ("ParamKind", "string", 0, POLICY_PARAM_KIND),
        A,
    ];
    table(&headings, &["spec.{mutations.#,paramKind}"], |o| {
        let count = o.at(&["spec", "mutations"]).items().len() as i64;
        vec![name(o), count.into(), param_kind(o), age(o)]
    })
}

pub(crate) fn policy_bindings() -> Columns {
    let headings = [
        N,
        ("PolicyName", "string", 0, BINDING_POLICY),
        ("ParamRef", "string", 0, BINDING_PARAM),
        A,
    ];
    table(&headings, &["spec.{policyName,paramRef}"], |o| {
        let param = o.at(&["spec", "paramRef"]);
        let cell = match (param.str_at(&["namespace"]), param.str_at(&["name"])) {
            (_, "") if param.get("selector").is_null() => "<unset>".to_owned(),
            (_, "") => go_selector(param.get("selector")),
            // Without a namespace the parameter is either cluster-scoped or looked up in the namespace of each
            // request; the reference alone does not say which.
            ("", n) => format!("*/{n}"),
            (ns, n) => format!("{ns}/{n}"),
        };
        vec![name(o), o.str_at(&["spec", "policyName"]).into(), cell.into(), age(o)]
    })
}

/// Prints a label selector like its generated `String` method in Go.
fn go_selector(v: &Value) -> String {
    let mut labels = String::new();
    // Go sorts the keys as well.
    let mut all: Vec<(&str, &Value)> = v
        .get("matchLabels")
        .as_object()
        .into_iter()
        .flat_map(|m| m.iter())
        .collect();
    all.sort_unstable_by_key(|(k, _)| *k);
    for (key, value) in all {
        labels += &format!("{key}: {},", value.as_str().unwrap_or_default());
    }
    let mut expressions = String::new();
    for e in v.get("matchExpressions").items() {
        let (key, operator) = (e.str_at(&["key"]), e.str_at(&["operator"]));
        let values = strings(e.get("values")).join(" ");
        expressions += &format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},");
    }
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

pub(crate) fn flow_schemas() -> Columns {
    let headings = [
        N,
        ("PriorityLevel", "string", 0, FLOW_LEVEL),
        ("MatchingPrecedence", "string", 0, FLOW_PRECEDENCE),
        ("DistinguisherMethod", "string", 0, FLOW_DISTINGUISHER),
        A,
        ("MissingPL", "string", 0, FLOW_MISSING),
    ];
    table(
        &headings,
        &[
            "spec.{priorityLevelConfiguration.name,matchingPrecedence,distinguisherMethod.type}",
            "status.conditions.{type,status}",
        ],
        |o| {
            let spec = o.get("spec");
            // `?` until the flow-control controller has looked for the priority level.
            let dangling = condition(o, "Dangling").map_or("?", |c| c.str_at(&["status"]));
            vec![
                name(o),
                spec.str_at(&["priorityLevelConfiguration", "name"]).into(),
                spec.get("matchingPrecedence").clone(),
                none_if_empty(spec.str_at(&["distinguisherMethod", "type"]).to_owned()).into(),
                age(o),
                dangling.into(),
            ]
        },
    )
}

pub(crate) fn priority_classes() -> Columns {
    let headings = [
        N,
        ("Value", "integer", 0, PRIORITY_VALUE),
        ("Global-Default", "boolean", 0, PRIORITY_GLOBAL),
        A,
        ("PreemptionPolicy", "string", 0, PRIORITY_PREEMPTION),
    ];
    table(&headings, &["{value,globalDefault,preemptionPolicy}"], |o| {
        vec![
            name(o),
            o.get("value").as_i64().unwrap_or(0).into(),
            o.get("globalDefault").as_bool().unwrap_or(false).into(),
            age(o),
            o.str_at(&["preemptionPolicy"]).into(),
        ]
    })
}

pub(crate) fn priority_levels() -> Columns {
    let headings = [
        N,
        ("Type", "string", 0, LEVEL_TYPE),
        ("NominalConcurrencyShares", "string", 0, LEVEL_SHARES),
        ("Queues", "string", 0, LEVEL_QUEUES),
        ("HandSize", "string", 0, LEVEL_HAND),
        ("QueueLengthLimit", "string", 0, LEVEL_LENGTH),
        A,
    ];
    table(
        &headings,
        &["spec.{type,limited.nominalConcurrencyShares,limited.limitResponse.queuing,exempt.nominalConcurrencyShares}"],
        |o| {
            let spec = o.get("spec");
            let or_none = |v: &Value| if v.is_null() { Value::from("<none>") } else { v.clone() };
            let queuing = spec.at(&["limited", "limitResponse", "queuing"]);
            let shares = match spec.at(&["limited", "nominalConcurrencyShares"]) {
                // A level has either member, depending on its type; both count shares.
                Value::Null => spec.at(&["exempt", "nominalConcurrencyShares"]),
                v => v,
            };
            vec![
                name(o),
                spec.str_at(&["type"]).into(),
                or_none(shares),
                or_none(queuing.get("queues")),
                or_none(queuing.get("handSize")),
                or_none(queuing.get("queueLengthLimit")),
                age(o),
            ]
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn parameters_of_a_binding_are_a_name_or_a_selector() {
        let cell = |param: Value| {
            let mut o = json!({});
            o.set(&["spec", "paramRef"], param);
            crate::apimachinery::field::show(&(policy_bindings().cells)(&o)[2])
        };
        assert_eq!(cell(Value::Null), r#""<unset>""#);
        assert_eq!(cell(json!({"namespace": "n"})), r#""<unset>""#);
        assert_eq!(cell(json!({"name": "p"})), r#""*/p""#);
        assert_eq!(
            cell(json!({"selector": {"matchLabels": {"b": "2", "a": "1"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]}})),
            r#""&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}""#
        );
    }
}
