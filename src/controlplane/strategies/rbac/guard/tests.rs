use super::*;
use crate::authz::rbac::{Binding, Index, Role};
use crate::json;
use crate::request::UserInfo;

fn guard(held: Value) -> (EscalationGuard, Context) {
    let mut index = Index::default();
    let role = json!({"rules": (serde_json::Value::from(held))});
    index.set_role("mine", Some(Arc::new(Role::parse(&role))));
    let admin = json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    index.set_role("admin", Some(Arc::new(Role::parse(&admin))));
    let b = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "mine"},
            "subjects": [{"kind": "User", "name": "u"}]});
    index.set_binding("b", Some(Arc::new(Binding::parse(&b))));
    let roles = Rbac::fixed(index);
    let cx = Context {
        user: Arc::new(UserInfo::system("u", &["g1", "g2"])),
        ..Context::system("ns")
    };
    let authorizer = roles.clone();
    (EscalationGuard { authorizer, roles }, cx)
}

fn wants(rules: Value) -> Value {
    let mut v = json!({"metadata": {"name": "x"}});
    v.set(&["rules"], rules);
    v
}

#[tokio::test]
async fn granting_requires_holding_the_rules() {
    let (g, cx) = guard(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    let held = wants(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]));
    g.role(&cx, true, &held, None).await.unwrap();
    let more = wants(json!([
        {"verbs": ["get", "create"], "apiGroups": ["apps"], "resources": ["deployments"]},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
    ]));
    let e = g.role(&cx, true, &more, None).await.unwrap_err();
    assert_eq!(
        e.message,
        "roles.rbac.authorization.k8s.io \"x\" is forbidden: user \"u\" (groups=[\"g1\" \"g2\"]) is attempting to grant \
             RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
             {APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"get\" \"create\"]}"
    );
    let mut owned = more.clone();
    owned.set_meta("finalizers", json!(["a/b"]));
    g.role(&cx, true, &owned, Some(&more)).await.unwrap();
    g.role(&Context::system(""), false, &more, None).await.unwrap();
}

#[tokio::test]
async fn refusal_lists_at_most_a_hundred_rules() {
    let (g, cx) = guard(json!([]));
    let all = |letter: &str, n: usize| -> Value {
        (0..n)
            .map(|i| Value::from(format!("{letter}{i}")))
            .collect::<Vec<_>>()
            .into()
    };
    let rule = |n: usize| {
        let mut v = json!({"apiGroups": [""]});
        v.set(&["resources"], all("r", n));
        v.set(&["verbs"], all("v", 3));
        let mut role = json!({"metadata": {"name": "x"}});
        role.set(&["rules"], vec![v.clone(), v]);
        role
    };
    let message = g.role(&cx, true, &rule(100), None).await.unwrap_err().message;
    assert_eq!(message.matches("{APIGroups").count(), 100);
    assert!(message.ends_with("}"), "{message}");
    let message = g.role(&cx, true, &rule(150), None).await.unwrap_err().message;
    assert_eq!(message.matches("{APIGroups").count(), 100);
    assert!(message.ends_with("}\nand 50 more"), "{message}");
    let message = g.role(&cx, true, &rule(5_000), None).await.unwrap_err().message;
    assert!(
        message.ends_with("}\nand more than 100 more") && message.len() < 40_000,
        "{message}"
    );
}

#[tokio::test]
async fn refusal_length_is_bounded_for_long_names() {
    let (g, cx) = guard(json!([]));
    let resources: Vec<Value> = (0..1_000).map(|i| format!("r{i}").into()).collect();
    let mut role = wants(json!([{"apiGroups": [""], "verbs": ["\u{ad}".repeat(1 << 20)]}]));
    let mut rule = role.get("rules").items()[0].clone();
    rule.set(&["resources"], resources);
    role.set(&["rules"], vec![rule]);
    let message = g.role(&cx, true, &role, None).await.unwrap_err().message;
    assert!(message.contains("Verbs:[\"\\u00ad\\u00ad"), "{message:.300}");
    assert_eq!(message.matches("…\n").count(), 7, "each rule has 4 KiB of 32");
    assert!(message.len() < 40_000);
}

#[tokio::test]
async fn escalate_or_bind_permission_suffices() {
    let (g, cx) = guard(json!([
        {"verbs": ["escalate"], "apiGroups": [GROUP], "resources": ["roles"], "resourceNames": ["x"]},
        {"verbs": ["bind"], "apiGroups": [GROUP], "resources": ["clusterroles"], "resourceNames": ["admin", "later"]},
    ]));
    let more = wants(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
    assert!(g.role(&cx, true, &more, None).await.is_err(), "a POST path has no name");
    g.role(&cx, true, &more, Some(&wants(json!([])))).await.unwrap();
    let binding = |kind: &str, name: &str| json!({"metadata": {"name": "b"}, "roleRef": {"kind": kind, "name": name}});
    g.binding(&cx, true, &binding("ClusterRole", "later"), None)
        .await
        .unwrap();
    g.binding(&cx, true, &binding("ClusterRole", "mine"), None)
        .await
        .unwrap();
    let e = g.binding(&cx, true, &binding("Role", "gone"), None).await.unwrap_err();
    assert_eq!(
        (e.code, e.message.as_str()),
        (404, "roles.rbac.authorization.k8s.io \"gone\" not found")
    );
}

#[tokio::test]
async fn aggregation_requires_all_permissions() {
    let (g, cx) = guard(json!([{"verbs": ["get"], "apiGroups": ["*"], "resources": ["*"]}]));
    let role = json!({"metadata": {"name": "x"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    let e = g.role(&cx, false, &role, None).await.unwrap_err();
    assert!(
        e.message
            .ends_with("must have cluster-admin privileges to use the aggregationRule")
    );
}
