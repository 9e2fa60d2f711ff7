mod large;

use super::objects::Subject;
use super::*;
use crate::apimachinery::{Str, Value};
use crate::authz::Decision;
use crate::json;
use crate::request::RequestInfo;
use http::Method;
use proptest::prelude::*;

fn role(rules: Value) -> Arc<Role> {
    Arc::new(Role::parse(&json!({"rules": (serde_json::Value::from(rules))})))
}

fn bind(index: &mut Index, namespace: &str, name: &str, kind: &str, role: &str, subjects: Value) {
    let mut v = json!({"metadata": {"name": name, "namespace": namespace}, "roleRef": {"kind": kind, "name": role}});
    v.set(&["subjects"], subjects);
    let key = if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    };
    index.set_binding(&key, Some(Arc::new(Binding::parse(&v))));
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo::system(name, groups)
}

fn ask(index: &Index, user: &UserInfo, method: Method, uri: &str) -> Verdict {
    let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
    verdict(index, &Attributes::of(user, &info))
}

fn verdict(index: &Index, attributes: &Attributes<'_>) -> Verdict {
    decide(index, attributes, &mut StepBudget::unbounded()).unwrap()
}

fn may(index: &Index, user: &UserInfo, method: Method, uri: &str) -> bool {
    ask(index, user, method, uri).decision == Decision::Allow
}

/// Binds the role `r` to a user.
fn bind_user(index: &mut Index, name: &str) {
    let user = json!([{"kind": "User", "name": name}]);
    bind(index, "", "b", "ClusterRole", "r", user);
}

fn pods_for_u(rules: Value) -> Index {
    let mut index = Index::default();
    index.set_role("r", Some(role(rules)));
    bind_user(&mut index, "u");
    index
}

#[test]
fn a_binding_is_prepared_while_others_change() {
    let mut index = Index::default();
    let subjects = json!([{"kind": "User", "name": "u"}]);
    let mut binding =
        json!({"metadata": {"name": "b", "namespace": "n"}, "roleRef": {"kind": "ClusterRole", "name": "r"}});
    binding.set(&["subjects"], subjects.clone());
    let prepared = index.with_binding("n/b", Some(Arc::new(Binding::parse(&binding))));
    bind(&mut index, "m", "b", "ClusterRole", "r", subjects);
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    index.set_role("r", Some(role(pods)));
    index.set_scope(prepared);
    let u = user("u", &[]);
    for namespace in ["n", "m"] {
        let uri = format!("/api/v1/namespaces/{namespace}/pods/x");
        assert!(may(&index, &u, Method::GET, &uri), "{namespace}");
    }
    assert_eq!(index.sizes(), (1, 2));
}

#[test]
fn reasons_match_upstream() {
    let mut index = pods_for_u(json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
    let sa = json!([{"kind": "ServiceAccount", "name": "bob"}, {"kind": "User", "name": "v"}]);
    index.set_role(
        "ns/local",
        Some(role(
            json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}]),
        )),
    );
    bind(&mut index, "ns", "rb", "Role", "local", sa);
    let v = ask(&index, &user("u", &[]), Method::GET, "/api/v1/namespaces/ns/pods/x");
    assert_eq!(
        v,
        Verdict::allow(r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "u""#)
    );
    let bob = user("system:serviceaccount:ns:bob", &[]);
    let v = ask(&index, &bob, Method::DELETE, "/api/v1/namespaces/ns/pods/x");
    assert_eq!(
        v,
        Verdict::allow(r#"RBAC: allowed by RoleBinding "rb/ns" of Role "local" to ServiceAccount "bob/ns""#)
    );
    assert!(!may(&index, &bob, Method::GET, "/api/v1/namespaces/other/pods/x"));
    assert!(
        !may(&index, &bob, Method::GET, "/api/v1/pods"),
        "a role binding does not reach the cluster"
    );
}

#[test]
fn bindings_to_missing_roles_are_named() {
    let mut index = Index::default();
    bind(
        &mut index,
        "",
        "b",
        "ClusterRole",
        "x",
        json!([{"kind": "Group", "name": "g"}]),
    );
    bind(
        &mut index,
        "ns",
        "c",
        "Role",
        "y",
        json!([{"kind": "User", "name": "u"}]),
    );
    let u = user("u", &["g"]);
    let v = ask(&index, &u, Method::GET, "/api/v1/nodes");
    assert_eq!(v.reason, r#"RBAC: clusterrole.rbac.authorization.k8s.io "x" not found"#);
    let v = ask(&index, &u, Method::GET, "/api/v1/namespaces/ns/pods");
    assert_eq!(
        v.reason,
        r#"RBAC: [clusterrole.rbac.authorization.k8s.io "x" not found, role.rbac.authorization.k8s.io "y" not found]"#
    );
    index.set_role(
        "x",
        Some(role(
            json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]),
        )),
    );
    assert!(
        may(&index, &u, Method::GET, "/api/v1/nodes"),
        "the role that comes later counts"
    );
    index.set_role("x", None);
    assert!(!may(&index, &u, Method::GET, "/api/v1/nodes"));
}

#[test]
fn wildcards_match_upstream() {
    let index = pods_for_u(json!([
        {"apiGroups": [""], "resources": ["pods/*"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get"]},
        {"apiGroups": ["batch"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"], "resourceNames": ["only"]},
        {"nonResourceURLs": ["/logs/*", "/version"], "verbs": ["get"]},
    ]));
    let u = user("u", &[]);
    for (method, uri, allowed) in [
        (Method::GET, "/api/v1/namespaces/n/pods", false),
        (Method::GET, "/api/v1/namespaces/n/pods/x/log", false),
        (Method::GET, "/apis/apps/v1/namespaces/n/deployments/d/scale", true),
        (Method::PUT, "/apis/apps/v1/namespaces/n/deployments/d/scale", false),
        (Method::DELETE, "/apis/batch/v1/namespaces/n/jobs", true),
        (Method::PUT, "/apis/batch/v1/namespaces/n/jobs/x/status", true),
        (Method::GET, "/api/v1/namespaces/n/secrets", false),
        (
            Method::GET,
            "/api/v1/namespaces/n/secrets?fieldSelector=metadata.name%3Donly",
            true,
        ),
        (
            Method::GET,
            "/api/v1/namespaces/n/secrets?fieldSelector=metadata.name%3Dother",
            false,
        ),
        (Method::GET, "/logs/a", true),
        (Method::GET, "/logs", false),
        (Method::POST, "/logs/a", false),
        (Method::GET, "/version", true),
        (Method::GET, "/version/", false),
    ] {
        assert_eq!(may(&index, &u, method.clone(), uri), allowed, "{method} {uri}");
    }
}

#[test]
fn removed_roles_and_subjects_no_longer_apply() {
    let mut index = pods_for_u(json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]));
    let u = user("u", &[]);
    assert!(may(&index, &u, Method::GET, "/api/v1/pods"));
    bind_user(&mut index, "other");
    assert!(!may(&index, &u, Method::GET, "/api/v1/pods"), "a subject was removed");
    assert!(may(&index, &user("other", &[]), Method::GET, "/api/v1/pods"));
    index.set_binding("b", None);
    assert!(!may(&index, &user("other", &[]), Method::GET, "/api/v1/pods"));
    assert_eq!(index.sizes(), (1, 0));
}

#[test]
fn an_explanation_names_the_rule_or_the_nearest_misses() {
    let index = pods_for_u(json!([
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    ]));
    let u = user("u", &[]);
    let explain = |method: Method, uri: &str| {
        let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
        Explanation::of(&index, &Attributes::of(&u, &info))
    };
    let e = explain(Method::GET, "/api/v1/namespaces/n/pods/x");
    let allowed = e.allowed.unwrap();
    assert_eq!((allowed.number, allowed.lacks.len()), (1, 0));
    let e = explain(Method::DELETE, "/api/v1/namespaces/n/pods/x");
    assert_eq!(e.closest.len(), 1);
    assert_eq!((e.closest[0].number, &*e.closest[0].lacks), (1, &["verb"][..]));
    assert_eq!(
        e.closest[0].rule.to_string(),
        r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#
    );
}

#[tokio::test]
async fn nothing_is_allowed_before_roles_are_read() {
    let rbac = Rbac::new();
    let info = RequestInfo::resolve(&Method::GET, &"/version".parse().unwrap()).unwrap();
    let v = rbac.authorize(&Attributes::of(&user("u", &[]), &info)).await;
    assert_eq!(v.decision, Decision::NoOpinion);
    assert!(v.error.is_some());
}

/// Upstream's algorithm, restated: every rule of every binding that applies to the caller.
fn plainly(roles: &[(String, Vec<PolicyRule>)], bindings: &[Arc<Binding>], attributes: &Attributes<'_>) -> bool {
    bindings
        .iter()
        .filter(|b| b.namespace.is_empty() || b.namespace == attributes.namespace)
        .filter(|b| {
            b.subjects.iter().any(|s| match s.kind.as_str() {
                "User" => s.name == attributes.user.name,
                _ => attributes.user.in_group(&s.name),
            })
        })
        .filter_map(|b| roles.iter().find(|(key, _)| *key == b.role_key().unwrap()))
        .any(|(_, rules)| rules.iter().any(|r| r.allows(attributes)))
}

fn words(all: &'static [&'static str]) -> impl Strategy<Value = Vec<Str>> {
    prop::collection::vec(prop::sample::select(all), 1..3).prop_map(|v| v.into_iter().map(Str::from).collect())
}

fn rule() -> impl Strategy<Value = PolicyRule> {
    let names = prop::collection::vec(prop::sample::select(&["a", "b"][..]), 0..2)
        .prop_map(|v| v.into_iter().map(Str::from).collect::<Vec<_>>());
    (
        words(&["get", "list", "create", "*"]),
        words(&["", "apps", "*"]),
        words(&["pods", "pods/log", "*/log", "nodes", "*"]),
        names,
        any::<bool>(),
    )
        .prop_map(|(verbs, api_groups, resources, resource_names, url)| {
            if url {
                PolicyRule {
                    verbs,
                    non_resource_urls: vec!["/a".into(), "/b/*".into()],
                    ..PolicyRule::default()
                }
            } else {
                PolicyRule {
                    verbs,
                    api_groups,
                    resources,
                    resource_names,
                    ..PolicyRule::default()
                }
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// The index agrees with a linear search, after any sequence of additions, changes and removals.
    #[test]
    fn the_index_agrees_with_a_linear_search(
        steps in prop::collection::vec((0..4usize, 0..12usize, prop::collection::vec(rule(), 0..3), 0..4usize, 0..3usize), 1..60),
        ask_ns in 0..3usize,
    ) {
        let mut index = Index::default();
        let mut roles: Vec<(String, Vec<PolicyRule>)> = Vec::new();
        let mut bindings: Vec<(String, Arc<Binding>)> = Vec::new();
        let namespaces = ["", "n", "m"];
        for (what, n, rules, who, ns) in steps {
            let ns = namespaces[ns];
            let at = |name: String| if ns.is_empty() { name } else { format!("{ns}/{name}") };
            match what {
                0 => {
                    let key = at(format!("r{n}"));
                    roles.retain(|(k, _)| *k != key);
                    roles.push((key.clone(), rules.clone()));
                    index.set_role(&key, Some(Arc::new(Role::of(rules))));
                }
                1 => {
                    let key = at(format!("r{n}"));
                    roles.retain(|(k, _)| *k != key);
                    index.set_role(&key, None);
                }
                2 => {
                    let key = at(format!("b{n}"));
                    let subjects = [("User", "u"), ("Group", "g"), ("Group", "h"), ("User", "other")];
                    let subject = |i: usize| Subject { kind: subjects[i].0.into(), name: subjects[i].1.into(), namespace: "".into() };
                    let b = Arc::new(Binding {
                        namespace: ns.into(),
                        name: format!("b{n}").into(),
                        role_kind: if ns.is_empty() || n % 2 == 0 { "ClusterRole".into() } else { "Role".into() },
                        role_name: format!("r{}", n % 5).into(),
                        subjects: vec![subject(who), subject((who + n) % 4)],
                    });
                    bindings.retain(|(k, _)| *k != key);
                    bindings.push((key.clone(), b.clone()));
                    index.set_binding(&key, Some(b));
                }
                _ => {
                    let key = at(format!("b{n}"));
                    bindings.retain(|(k, _)| *k != key);
                    index.set_binding(&key, None);
                }
            }
        }
        let all: Vec<Arc<Binding>> = bindings.into_iter().map(|(_, b)| b).collect();
        let u = user("u", &["g", "h"]);
        let nothing = RequestInfo::default();
        for verb in ["get", "list", "delete"] {
            for (group, resource, subresource) in [("", "pods", ""), ("", "pods", "log"), ("apps", "nodes", ""), ("x", "z", "log")] {
                for name in ["", "a"] {
                    let attributes = Attributes { verb, is_resource: true, api_group: group, resource, subresource, name,
                        namespace: namespaces[ask_ns], ..Attributes::of(&u, &nothing) };
                    let allowed = verdict(&index, &attributes).decision == Decision::Allow;
                    prop_assert_eq!(allowed, plainly(&roles, &all, &attributes), "{:?}", attributes);
                    let explained = Explanation::of(&index, &attributes).allowed.is_some();
                    prop_assert_eq!(allowed, explained);
                }
            }
            for path in ["/a", "/b/c", "/c"] {
                let attributes = Attributes { verb, path, ..Attributes::of(&u, &nothing) };
                prop_assert_eq!(verdict(&index, &attributes).decision == Decision::Allow, plainly(&roles, &all, &attributes));
            }
        }
    }
}
