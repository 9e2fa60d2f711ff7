//! The default flow schemas and priority levels (upstream's
//! `staging/src/k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap/default.go`).

use crate::apimachinery::value::Value;
use crate::json;

/// How a priority level limits requests.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    Exempt,
    /// Excess requests are rejected.
    Reject {
        /// Nominal concurrency shares.
        shares: i64,
    },
    /// Excess requests are queued.
    Queue {
        /// Nominal concurrency shares.
        shares: i64,
        /// Percentage of its seats that other levels may borrow.
        lendable: i64,
        queues: i64,
        /// Hand size: the queues shuffle-sharded to one flow.
        hand_size: i64,
    },
}

/// A priority level: name, whether it is mandatory (rather than suggested), and limit.
pub(super) type Level = (&'static str, bool, Limit);

const fn queue(shares: i64, lendable: i64, queues: i64, hand_size: i64) -> Limit {
    Limit::Queue {
        shares,
        lendable,
        queues,
        hand_size,
    }
}

/// The default priority levels.
pub(super) const LEVELS: &[Level] = &[
    ("exempt", true, Limit::Exempt),
    ("catch-all", true, Limit::Reject { shares: 5 }),
    ("system", false, queue(30, 33, 64, 6)),
    ("node-high", false, queue(40, 25, 64, 6)),
    ("leader-election", false, queue(10, 0, 16, 4)),
    ("workload-high", false, queue(40, 50, 128, 6)),
    ("workload-low", false, queue(100, 90, 128, 6)),
    ("global-default", false, queue(20, 50, 128, 6)),
];

/// The requests a flow schema matches.
#[derive(Clone, Copy)]
pub(super) enum Matches {
    Everything,
    /// `/healthz`, `/livez`, `/readyz`.
    Probes,
    /// The requests of leader election.
    Leases,
    /// The writes of the endpoints controllers.
    Endpoints,
    /// Nodes, their status, and leases.
    Nodes,
}

/// A default flow schema.
pub(super) struct Schema {
    pub name: &'static str,
    /// Mandatory rather than suggested.
    pub mandatory: bool,
    /// Matching precedence; the lowest matching schema wins.
    pub precedence: i64,
    /// Name of the priority level.
    pub level: &'static str,
    /// Flow distinguisher: `ByUser`, `ByNamespace`, or empty.
    pub by: &'static str,
    /// `Group/x`, `User/x`, or `namespace:name` of a service account.
    pub subjects: &'static [&'static str],
    /// The requests it matches.
    pub what: Matches,
}

const fn schema(
    name: &'static str,
    precedence: i64,
    level: &'static str,
    by: &'static str,
    subjects: &'static [&'static str],
    what: Matches,
) -> Schema {
    Schema {
        name,
        mandatory: false,
        precedence,
        level,
        by,
        subjects,
        what,
    }
}

const fn mandatory(schema: Schema) -> Schema {
    Schema {
        mandatory: true,
        ..schema
    }
}

// In upstream's order, because live specs are compared as a whole.
const EVERYBODY: &[&str] = &["Group/system:unauthenticated", "Group/system:authenticated"];
const MANAGERS: &[&str] = &[
    "User/system:kube-controller-manager",
    "User/system:kube-scheduler",
    "kube-system:*",
];
const NODES: &[&str] = &["Group/system:nodes"];
const USER: &str = "ByUser";
const NAMESPACE: &str = "ByNamespace";

/// The default flow schemas.
#[rustfmt::skip]
pub(super) const SCHEMAS: &[Schema] = &[
    mandatory(schema("exempt", 1, "exempt", "", &["Group/system:masters"], Matches::Everything)),
    schema("probes", 2, "exempt", "", EVERYBODY, Matches::Probes),
    schema("system-leader-election", 100, "leader-election", USER, MANAGERS, Matches::Leases),
    schema("endpoint-controller", 150, "workload-high", USER, &["User/system:kube-controller-manager", "kube-system:endpoint-controller", "kube-system:endpointslicemirroring-controller"], Matches::Endpoints),
    schema("workload-leader-election", 200, "leader-election", USER, &["kube-system:*"], Matches::Leases),
    schema("system-node-high", 400, "node-high", USER, NODES, Matches::Nodes),
    schema("system-nodes", 500, "system", USER, NODES, Matches::Everything),
    schema("kube-controller-manager", 800, "workload-high", NAMESPACE, &["User/system:kube-controller-manager"], Matches::Everything),
    schema("kube-scheduler", 800, "workload-high", NAMESPACE, &["User/system:kube-scheduler"], Matches::Everything),
    schema("kube-system-service-accounts", 900, "workload-high", NAMESPACE, &["kube-system:*"], Matches::Everything),
    schema("service-accounts", 9000, "workload-low", USER, &["Group/system:serviceaccounts"], Matches::Everything),
    schema("global-default", 9900, "global-default", USER, EVERYBODY, Matches::Everything),
    mandatory(schema("catch-all", 10000, "catch-all", USER, EVERYBODY, Matches::Everything)),
];

/// The spec of a mandatory flow schema, which is fixed.
pub(in crate::controlplane) fn mandatory_schema(name: &str) -> Option<Value> {
    let mut all = SCHEMAS.iter().filter(|s| s.mandatory);
    all.find(|s| s.name == name).map(Schema::spec)
}

/// The spec of a mandatory level, which is fixed.
pub(in crate::controlplane) fn mandatory_level(name: &str) -> Option<Value> {
    let mut all = LEVELS.iter().filter(|(_, mandatory, _)| *mandatory);
    all.find(|(level, ..)| *level == name)
        .map(|(.., limit)| level_spec(*limit))
}

pub(super) fn level_spec(limit: Limit) -> Value {
    let limited = |shares: i64, lendable: i64, response: Value| {
        let mut v =
            json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "lendablePercent": lendable}});
        v.set(&["limited", "limitResponse"], response);
        v
    };
    match limit {
        Limit::Exempt => json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
        Limit::Reject { shares } => limited(shares, 0, json!({"type": "Reject"})),
        Limit::Queue {
            shares,
            lendable,
            queues,
            hand_size,
        } => {
            let queuing = json!({"queues": queues, "handSize": hand_size, "queueLengthLimit": 50});
            let mut response = json!({"type": "Queue"});
            response.set(&["queuing"], queuing);
            limited(shares, lendable, response)
        }
    }
}

impl Schema {
    pub(super) fn spec(&self) -> Value {
        let mut v = json!({
            "matchingPrecedence": (self.precedence), "priorityLevelConfiguration": {"name": (self.level)},
        });
        if !self.by.is_empty() {
            v.set(&["distinguisherMethod", "type"], self.by);
        }
        let mut rule = self.what.rule();
        let subjects: Vec<Value> = self.subjects.iter().map(|s| subject(s)).collect();
        rule.set(&["subjects"], subjects);
        v.set(&["rules"], vec![rule]);
        v
    }
}

fn subject(text: &str) -> Value {
    if let Some(name) = text.strip_prefix("Group/") {
        json!({"kind": "Group", "group": {"name": name}})
    } else if let Some(name) = text.strip_prefix("User/") {
        json!({"kind": "User", "user": {"name": name}})
    } else {
        let (namespace, name) = text.split_once(':').unwrap_or((text, "*"));
        json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}})
    }
}

impl Matches {
    fn rule(self) -> Value {
        match self {
            Self::Everything => json!({
                "resourceRules": [{"apiGroups": ["*"], "clusterScope": true, "namespaces": ["*"], "resources": ["*"], "verbs": ["*"]}],
                "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
            }),
            Self::Probes => json!({
                "nonResourceRules": [{"nonResourceURLs": ["/healthz", "/readyz", "/livez"], "verbs": ["get"]}],
            }),
            Self::Leases => json!({
                "resourceRules": [{"apiGroups": ["coordination.k8s.io"], "namespaces": ["*"], "resources": ["leases"],
                                   "verbs": ["get", "create", "update"]}],
            }),
            Self::Endpoints => json!({
                "resourceRules": [{"apiGroups": [""], "namespaces": ["*"], "resources": ["endpoints"],
                                   "verbs": ["get", "create", "update"]}],
            }),
            Self::Nodes => json!({
                "resourceRules": [
                    {"apiGroups": [""], "clusterScope": true, "namespaces": ["*"], "resources": ["nodes", "nodes/status"],
                     "verbs": ["*"]},
                    {"apiGroups": ["coordination.k8s.io"], "namespaces": ["*"], "resources": ["leases"], "verbs": ["*"]},
                ],
            }),
        }
    }
}
