use super::*;
use crate::admission::testing::{cluster, request};
use crate::apimachinery::gvk::GroupVersionKind;
use crate::json;

fn configmaps() -> Value {
    json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}])
}

fn webhook(edits: Value) -> Criteria {
    let mut webhook = json!({"rules": (configmaps())});
    for (key, value) in edits.as_object().into_iter().flat_map(|m| m.iter()) {
        webhook.set(&[key], value.clone());
    }
    Criteria::of_webhook(&webhook)
}

fn labelled(name: &str, team: &str) -> Value {
    json!({"metadata": {"name": (name), "labels": {"team": (team)}}})
}

async fn matches(criteria: &Criteria, attributes: &Attributes, object: &Value) -> std::result::Result<bool, String> {
    let cluster = cluster(&[("", "namespaces", vec![labelled("ns", "a")])]);
    let matcher = Matcher::new(&cluster, attributes);
    let matched = matcher.matches(criteria, object).await;
    let ruled_out = matcher.rules_out(criteria, &matcher.labels(object));
    assert!(
        !ruled_out || matches!(matched, Ok(None)),
        "a write that matches is not ruled out"
    );
    matched
        .map(|m| m.is_some())
        .map_err(|s| format!("{} {}", s.code, s.message))
}

fn team(name: &str) -> Value {
    json!({"matchLabels": {"team": (name)}})
}

#[test]
fn operations_and_labels_rule_out_without_a_lookup() {
    let cluster = cluster(&[]);
    let create = request(Operation::Create, "", "configmaps", "c");
    let object = labelled("c", "a");
    let ruled_out = |edits| {
        let matcher = Matcher::new(&cluster, &create);
        matcher.rules_out(&webhook(edits), &matcher.labels(&object))
    };
    assert!(!ruled_out(json!({})));
    assert!(!ruled_out(json!({"objectSelector": (team("a"))})));
    assert!(ruled_out(json!({"objectSelector": (team("b"))})));
    let absent = json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]});
    assert!(ruled_out(json!({"objectSelector": (absent)})));
    let either = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["b", "a"]}]});
    assert!(!ruled_out(json!({"objectSelector": (either)})));
    let deletes =
        json!([{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    assert!(ruled_out(json!({"rules": (deletes)})));
}

#[tokio::test]
async fn namespace_selectors_match_the_stored_namespace() {
    let create = request(Operation::Create, "", "configmaps", "c");
    for (name, expected) in [("a", true), ("b", false)] {
        let criteria = webhook(json!({"namespaceSelector": (team(name))}));
        assert_eq!(matches(&criteria, &create, &json!({})).await, Ok(expected));
    }
    let lost = Attributes {
        namespace: "lost".to_owned(),
        ..create
    };
    let criteria = webhook(json!({"namespaceSelector": (team("a"))}));
    let missing = Err("404 namespaces \"lost\" not found".to_owned());
    assert_eq!(matches(&criteria, &lost, &json!({})).await, missing);
    assert_eq!(
        matches(&webhook(json!({})), &lost, &json!({})).await,
        Ok(true),
        "nothing is looked up"
    );
}

#[tokio::test]
async fn selector_errors_count_only_if_the_rules_and_the_other_selector_match() {
    let broken = json!({"matchExpressions": [{"key": "a", "operator": "Is"}]});
    let create = request(Operation::Create, "", "configmaps", "c");
    let criteria = webhook(json!({"namespaceSelector": (broken.clone())}));
    let answer = matches(&criteria, &create, &json!({})).await.unwrap_err();
    assert!(answer.starts_with("500 Internal error occurred: "), "{answer}");
    let secret = request(Operation::Create, "", "secrets", "c");
    assert_eq!(matches(&criteria, &secret, &json!({})).await, Ok(false));
    let unselected = webhook(json!({"namespaceSelector": (broken), "objectSelector": (team("x"))}));
    assert_eq!(matches(&unselected, &create, &json!({})).await, Ok(false));
}

#[tokio::test]
async fn object_selectors_match_the_old_or_the_new_object() {
    let criteria = webhook(json!({"objectSelector": (team("a"))}));
    let update = |old: Value| Attributes {
        old_object: Some(Arc::new(old)),
        ..request(Operation::Update, "", "configmaps", "c")
    };
    let (a, b) = (labelled("c", "a"), labelled("c", "b"));
    assert_eq!(matches(&criteria, &update(b.clone()), &a).await, Ok(true));
    assert_eq!(matches(&criteria, &update(a.clone()), &b).await, Ok(true));
    assert_eq!(matches(&criteria, &update(b.clone()), &b).await, Ok(false));
    let delete = Attributes {
        operation: Operation::Delete,
        ..update(a)
    };
    assert_eq!(matches(&criteria, &delete, &Value::Null).await, Ok(true));
}

#[tokio::test]
async fn written_namespaces_are_selected_by_their_new_labels_and_deleted_ones_by_the_stored() {
    let rule = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]}]);
    let criteria = webhook(json!({"rules": (rule), "namespaceSelector": (team("b"))}));
    let of = |operation| Attributes {
        namespace: String::new(),
        ..request(operation, "", "namespaces", "ns")
    };
    let relabelled = labelled("ns", "b");
    assert_eq!(matches(&criteria, &of(Operation::Update), &relabelled).await, Ok(true));
    assert_eq!(
        matches(&criteria, &of(Operation::Delete), &Value::Null).await,
        Ok(false)
    );
}

#[tokio::test]
async fn equivalent_versions_match_unless_the_policy_is_exact() {
    let rule =
        json!([{"operations": ["*"], "apiGroups": ["events.k8s.io"], "apiVersions": ["v1"], "resources": ["events"]}]);
    let create = request(Operation::Create, "", "events", "e");
    let cluster = cluster(&[]);
    let matcher = Matcher::new(&cluster, &create);
    let equivalent = webhook(json!({"rules": (rule.clone())}));
    let target = matcher
        .matches(&equivalent, &json!({}))
        .await
        .unwrap()
        .expect("matches");
    assert_eq!(target.kind, GroupVersionKind::new("events.k8s.io", "v1", "Event"));
    let exact = webhook(json!({"rules": (rule), "matchPolicy": "Exact"}));
    assert_eq!(matcher.matches(&exact, &json!({})).await.unwrap(), None);
}

#[tokio::test]
async fn excluded_rules_win_and_a_binding_without_rules_matches_everything() {
    let create = request(Operation::Create, "", "configmaps", "c");
    let all = Criteria::of_policy(&json!({}));
    assert_eq!(matches(&all, &create, &json!({})).await, Ok(true));
    let policy = |excluded: Value| {
        Criteria::of_policy(&json!({"resourceRules": (configmaps()), "excludeResourceRules": (excluded)}))
    };
    assert_eq!(matches(&policy(json!([])), &create, &json!({})).await, Ok(true));
    assert_eq!(matches(&policy(configmaps()), &create, &json!({})).await, Ok(false));
    assert_eq!(
        matches(&Criteria::of_webhook(&json!({})), &create, &json!({})).await,
        Ok(false)
    );
}

#[test]
fn configurations_of_admission_are_exempt() {
    let of = |group: &str, kind: &str| {
        let mut write = request(Operation::Create, group, "x", "x");
        write.kind = GroupVersionKind::new(group, "v1", kind);
        is_exempt(&write)
    };
    assert!(of("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"));
    assert!(!of("example.com", "MutatingAdmissionPolicyBinding"));
    assert!(!of("", "ConfigMap"));
}
