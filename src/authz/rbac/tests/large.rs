//! Many roles, bindings and rules: decisions stay correct, their cost linear, and their texts short.

use super::*;
use std::time::Duration;

/// 1,000 roles and 10,000 bindings, of which one applies to the test user, and a group bound to 500 roles.
fn crowd() -> Index {
    let mut index = Index::default();
    for r in 0..1_000 {
        let rules = json!([
            {"apiGroups": ["apps"], "resources": [(format!("things{r}"))], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": [(format!("pod{r}"))]},
        ]);
        index.set_role(&format!("role{r}"), Some(role(rules)));
    }
    for b in 0..9_500 {
        let (ns, who) = (format!("ns{}", b % 500), format!("user{}", b % 3_000));
        let subjects = json!([{"kind": "User", "name": who}]);
        bind(
            &mut index,
            &ns,
            &format!("b{b}"),
            "ClusterRole",
            &format!("role{}", b % 1_000),
            subjects,
        );
    }
    for b in 0..500 {
        let subjects = json!([{"kind": "Group", "name": "crowd"}]);
        bind(
            &mut index,
            "",
            &format!("g{b:03}"),
            "ClusterRole",
            &format!("role{b}"),
            subjects,
        );
    }
    index
}

#[test]
fn many_bindings_are_decided_correctly() {
    let index = crowd();
    assert_eq!(index.sizes(), (1_000, 10_000));
    let u = user("user7", &["crowd", "system:authenticated"]);
    assert!(may(&index, &u, Method::GET, "/apis/apps/v1/namespaces/x/things499"));
    assert!(!may(&index, &u, Method::GET, "/apis/apps/v1/namespaces/x/things500"));
    assert!(may(&index, &u, Method::GET, "/apis/apps/v1/namespaces/ns7/things7/x"));
    assert!(may(&index, &u, Method::GET, "/api/v1/namespaces/x/pods/pod499"));
    assert!(!may(&index, &u, Method::GET, "/api/v1/namespaces/x/pods/pod500"));
}

fn numbered(letter: &str, count: usize) -> Vec<Str> {
    (0..count).map(|i| format!("{letter}{i}").into()).collect()
}

#[test]
fn the_cost_of_a_rule_is_linear_in_its_lists() {
    let rule = PolicyRule {
        verbs: numbered("v", 2_000),
        api_groups: numbered("g", 2_000),
        resources: numbered("r", 2_000),
        resource_names: numbered("n", 2_000),
        ..PolicyRule::default()
    };
    let role = Role::of(vec![rule]);
    let (u, nothing) = (user("u", &[]), RequestInfo::default());
    let attributes = Attributes {
        verb: "v7",
        is_resource: true,
        api_group: "g1999",
        resource: "r5",
        name: "n3",
        ..Attributes::of(&u, &nothing)
    };
    let mut steps = StepBudget::for_io_worker();
    assert_eq!(role.find(&attributes, &mut steps), Ok(Some(0)));
    assert_eq!(
        role.find(
            &Attributes {
                name: "x",
                ..attributes
            },
            &mut steps
        ),
        Ok(None)
    );
}

/// Roles that match a request in all but one part, a different part each time.
fn near_misses(count: usize) -> Index {
    let mut index = Index::default();
    for i in 0..count {
        let part = |n: usize, right: &str| if i % 3 == n { "other" } else { right }.to_owned();
        let rules =
            json!([{"verbs": [(part(0, "get"))], "apiGroups": [(part(1, ""))], "resources": [(part(2, "pods"))]}]);
        index.set_role(&format!("r{i}"), Some(role(rules)));
        let subjects = json!([{"kind": "User", "name": "u"}]);
        bind(
            &mut index,
            "",
            &format!("b{i:05}"),
            "ClusterRole",
            &format!("r{i}"),
            subjects,
        );
    }
    index
}

#[tokio::test]
async fn an_expensive_decision_is_not_made_synchronously() {
    let (u, nothing) = (user("u", &[]), RequestInfo::default());
    let attributes = Attributes {
        verb: "get",
        is_resource: true,
        resource: "pods",
        ..Attributes::of(&u, &nothing)
    };
    let few = Rbac::fixed(near_misses(20));
    assert_eq!(
        few.authorize_sync(&attributes).map(|v| v.decision),
        Some(Decision::NoOpinion)
    );
    let mut index = near_misses(3_000);
    let many = Rbac::fixed(index.clone());
    assert_eq!(many.authorize_sync(&attributes), None);
    assert_eq!(many.authorize(&attributes).await.decision, Decision::NoOpinion);
    // The slow path caches what it resolved, so the next decision is synchronous.
    assert_eq!(
        many.authorize_sync(&attributes).map(|v| v.decision),
        Some(Decision::NoOpinion)
    );
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    index.set_role("r2999", Some(role(rules)));
    let changed = Rbac::fixed(index);
    assert_eq!(changed.authorize(&attributes).await.decision, Decision::Allow);
}

#[test]
fn the_reason_truncates_the_list_of_missing_roles() {
    let mut index = Index::default();
    for i in 0..50 {
        let subjects = json!([{"kind": "User", "name": "u"}]);
        bind(
            &mut index,
            "",
            &format!("b{i:02}"),
            "ClusterRole",
            &format!("r{i}"),
            subjects,
        );
    }
    let v = ask(&index, &user("u", &[]), Method::GET, "/version");
    assert!(
        v.reason
            .starts_with(r#"RBAC: [clusterrole.rbac.authorization.k8s.io "r0" not found, "#)
    );
    assert!(v.reason.ends_with(", 40 more]"), "{}", v.reason);
}

#[test]
fn a_long_list_of_rules_is_truncated() {
    let mut index = Index::default();
    let rule = PolicyRule {
        verbs: numbered("v", 10_000),
        ..PolicyRule::default()
    };
    index.set_role("r", Some(Arc::new(Role::of(vec![rule]))));
    for i in 0..100 {
        let subjects = json!([{"kind": "User", "name": "u"}]);
        bind(&mut index, "", &format!("b{i}"), "ClusterRole", "r", subjects);
    }
    let listed = index.rules(&user("u", &[]), "");
    assert!(listed.cut && listed.rules.len() < 100);
    assert_eq!(index.held(&user("u", &[]), "").0.len(), 1);
}

/// Run with `cargo test --release --lib decision_latency -- --ignored --nocapture`. Results are in
/// docs/BENCHMARKS.md.
#[tokio::test]
#[ignore = "prints figures; means something in a release build only"]
async fn decision_latency() {
    use crate::authn::{Authenticator, BearerToken, Credentials, TokenFile, Union};
    let rbac = Rbac::fixed(crowd());
    let tokens = TokenFile::parse("f", "secret,user7,u,\"crowd,system:authenticated\"").unwrap();
    let authn = Union::new(vec![Arc::new(BearerToken::new(Arc::new(tokens)))]);
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", "Bearer secret".parse().unwrap());
    let of = |uri: &str| RequestInfo::resolve(&Method::GET, &uri.parse().unwrap()).unwrap();
    for (what, uri) in [
        ("allowed by the last of 500", "/apis/apps/v1/namespaces/ns7/things499/x"),
        ("allowed by name", "/api/v1/namespaces/ns7/pods/pod499"),
        ("refused", "/api/v1/namespaces/ns7/secrets/x"),
        ("refused subresource", "/api/v1/namespaces/ns7/pods/x/log"),
    ] {
        let info = of(uri);
        let u = user("user7", &["crowd", "system:authenticated"]);
        let attributes = Attributes::of(&u, &info);
        rbac.authorize(&attributes).await;
        const N: u32 = 100_000;
        let start = std::time::Instant::now();
        for _ in 0..N {
            std::hint::black_box(rbac.authorize(&attributes).await);
        }
        let decision = start.elapsed() / N;
        let start = std::time::Instant::now();
        for _ in 0..N {
            let credentials = Credentials {
                headers: &headers,
                peer: None,
                warnings: None,
                path: "",
            };
            let who = authn.authenticate(credentials).await.unwrap().unwrap();
            std::hint::black_box(rbac.authorize(&Attributes::of(&who.user, &info)).await);
        }
        let both = start.elapsed() / N;
        eprintln!("{what}: authorize {decision:?}, authenticate and authorize {both:?}");
        if !cfg!(debug_assertions) {
            assert!(decision < Duration::from_micros(5) && both < Duration::from_micros(8));
        }
    }
}
