use super::*;
use crate::json;
use http::Method;

fn schema(name: &str, precedence: i64, level: &str, rules: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("fs-{name}")},
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": {"name": level},
            "rules": [rules]
        }
    })
}

fn everything(subject: Value) -> Value {
    json!({
        "subjects": [subject],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    })
}

fn group(name: &str) -> Value {
    json!({"kind": "Group", "group": {"name": name}})
}

fn standard() -> Vec<FlowSchema> {
    let leases = json!({
        "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}],
        "resourceRules": [{
            "verbs": ["get", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "namespaces": ["*"]
        }]
    });
    let probes = json!({
        "subjects": [group("system:unauthenticated"), group("system:authenticated")],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]
    });
    let schemas = [
        schema(
            "global-default",
            9900,
            "global",
            everything(group("system:authenticated")),
        ),
        schema("exempt", 1, "exempt", everything(group("system:masters"))),
        schema("dangling", 2, "nowhere", everything(group("system:authenticated"))),
        schema("probes", 2, "exempt", probes),
        schema("leader", 100, "leader", leases),
        schema("catch-all", 10000, "catch-all", everything(group("nobody"))),
    ];
    let levels = ["exempt", "global", "leader", "catch-all"].map(test_level);
    let mut parsed: Vec<FlowSchema> = schemas
        .map(IndexedSchema::of)
        .iter()
        .filter_map(|schema| {
            let wanted = schema.object.str_at(&["spec", "priorityLevelConfiguration", "name"]);
            let level = levels.iter().find(|level| **level.name() == *wanted)?;
            let uid = format!("pl-{wanted}").parse().unwrap();
            Some(FlowSchema::parse(schema, level.clone(), uid))
        })
        .collect();
    parsed.sort_by(|a, b| a.order().cmp(&b.order()));
    parsed
}

fn test_level(name: &str) -> Arc<Level> {
    use crate::flowcontrol::level::Shared;
    use crate::flowcontrol::queueset::Queuing;
    let shared = Shared::new(10, &crate::telemetry::Telemetry::new());
    let level = Level::new(name.into(), &shared, Queuing::Reject);
    Arc::new(level)
}

fn flow(schemas: &[FlowSchema], user: &str, groups: &[&str], method: Method, uri: &str) -> (String, String) {
    let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
    let found = classify(schemas, &UserInfo::system(user, groups), &info);
    let text = |v: &HeaderValue| v.to_str().unwrap().to_owned();
    (text(&found.uids.schema), text(&found.uids.level))
}

#[test]
fn the_first_matching_schema_wins() {
    let f = standard();
    let auth = &["system:authenticated"][..];
    let sa = "system:serviceaccount:kube-system:x";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases/l";
    for (user, groups, method, uri, want) in [
        (
            "r",
            &["system:masters"][..],
            Method::GET,
            "/api/v1/pods",
            ("fs-exempt", "pl-exempt"),
        ),
        ("u", auth, Method::GET, "/livez/ping", ("fs-probes", "pl-exempt")),
        ("u", auth, Method::GET, "/livezz", ("fs-global-default", "pl-global")),
        ("u", auth, Method::POST, "/livez", ("fs-global-default", "pl-global")),
        (sa, auth, Method::PUT, leases, ("fs-leader", "pl-leader")),
        (sa, auth, Method::DELETE, leases, ("fs-global-default", "pl-global")),
        (
            sa,
            auth,
            Method::GET,
            "/apis/coordination.k8s.io/v1/leases?watch=1",
            ("fs-global-default", "pl-global"),
        ),
        (
            "u",
            &[][..],
            Method::GET,
            "/api/v1/pods",
            ("fs-catch-all", "pl-catch-all"),
        ),
    ] {
        let got = flow(&f, user, groups, method, uri);
        assert_eq!((got.0.as_str(), got.1.as_str()), want, "{user} {uri}");
    }
}

#[test]
fn flows_are_distinguished_by_user_or_namespace() {
    let info = RequestInfo::resolve(&Method::GET, &"/api/v1/namespaces/ns/pods".parse().unwrap()).unwrap();
    let user = UserInfo::system("u", &[]);
    for (method, expected) in [
        (None, ""),
        (Some(Distinguisher::ByUser), "u"),
        (Some(Distinguisher::ByNamespace), "ns"),
    ] {
        assert_eq!(distinguisher(method, &user, &info), expected);
    }
}

#[test]
fn a_request_matches_one_policy_among_thousands() {
    let rule = |i: usize| {
        json!({
            "subjects": [
                {"kind": "User", "user": {"name": format!("u{i}")}},
                {"kind": "ServiceAccount", "serviceAccount": {"namespace": format!("n{i}"), "name": "s"}},
                {"kind": "ServiceAccount", "serviceAccount": {"namespace": format!("all{i}"), "name": "*"}},
                group("everybody")
            ],
            "resourceRules": [
                {"verbs": ["get"], "apiGroups": [""], "resources": [format!("r{i}/log")], "namespaces": ["*"]},
                {"verbs": ["list"], "apiGroups": ["*"], "resources": [format!("r{i}")], "clusterScope": true}
            ],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": [format!("/p{i}/*")]}]
        })
    };
    let rules: Vec<Value> = (0..3_000).map(rule).collect();
    let rules = Rules::of(&json!({"spec": {"rules": rules}}));
    for (user, groups, uri, expected) in [
        ("u2999", &[][..], "/api/v1/namespaces/a/r2999/x/log", true),
        ("u2999", &[][..], "/api/v1/namespaces/a/r2999/x", false),
        ("u2999", &[][..], "/api/v1/namespaces/a/r2998/x/log", false),
        ("u2999", &[][..], "/api/v1/r2999", true),
        ("u2999", &[][..], "/api/v1/namespaces/a/r2999", false),
        ("u2999", &[][..], "/p2999/", true),
        ("u2999", &[][..], "/p2999", false),
        ("u2999", &[][..], "/p2998/", false),
        ("system:serviceaccount:n7:s", &[][..], "/api/v1/r7", true),
        ("system:serviceaccount:n7:t", &[][..], "/api/v1/r7", false),
        ("system:serviceaccount:all7:t", &[][..], "/api/v1/r7", true),
        ("u", &["another", "everybody"][..], "/p1234/x", true),
        ("u", &["another"][..], "/p1234/x", false),
    ] {
        let info = RequestInfo::resolve(&Method::GET, &uri.parse().unwrap()).unwrap();
        assert_eq!(
            rules.matches(&UserInfo::system(user, groups), &info),
            expected,
            "{user} {uri}"
        );
    }
}
