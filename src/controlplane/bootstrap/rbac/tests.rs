use super::*;
use crate::controlplane::tests::running;
use crate::json;

fn by_name<'a>(all: &'a [Value], name: &str) -> &'a Value {
    all.iter().find(|v| v.name() == name).unwrap()
}

#[test]
fn every_table_line_expands_to_a_complete_rule() {
    let [cluster_roles, cluster_bindings, roles, bindings] = objects();
    for role in cluster_roles.iter().chain(&roles) {
        for rule in role.get("rules").items() {
            let ends = |key: &str| !rule.get(key).items().is_empty();
            assert!(ends("verbs"), "{role:?}");
            assert!(
                ends("nonResourceURLs") || (ends("apiGroups") && ends("resources")),
                "{role:?}"
            );
            for word in rule.get("verbs").items() {
                let word = word.as_str().unwrap();
                assert!(
                    !word.is_empty() && (word == "*" || word.chars().all(|c| c.is_ascii_lowercase())),
                    "{word}"
                );
            }
        }
    }
    for (bindings, roles) in [(&cluster_bindings, &cluster_roles), (&bindings, &roles)] {
        for b in bindings.iter() {
            by_name(roles, b.str_at(&["roleRef", "name"]));
        }
    }
}

#[test]
fn missing_content_is_appended_and_extra_content_kept() {
    let wanted = json!({"metadata": {"labels": {"a": "1"}}, "subjects": [{"name": "x"}],
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]});
    let live = json!({"metadata": {"labels": {"a": "2"}}, "aggregationRule": {}, "subjects": [{"name": "y"}],
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "watch"]}]});
    assert_eq!(
        extended(&live, &wanted),
        json!({"metadata": {"labels": {"a": "2"}}, "subjects": [{"name": "y"}, {"name": "x"}],
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "watch"]},
                      {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]})
    );
}

#[tokio::test]
async fn roles_are_created_once_and_completed() {
    let r = running();
    ensure(&r.plane).await.unwrap();
    let before = r.engine.revision();
    ensure(&r.plane).await.unwrap();
    assert_eq!(r.engine.revision(), before, "a second run writes nothing");

    let store = r.plane.store(GROUP, "clusterroles");
    let view = store.get_value("", "view").await.unwrap();
    assert!(view.get("rules").is_null());
    let role = store.get_value("", "system:kube-dns").await.unwrap();
    change(store, &role, MANAGER, |v| v.set(&["rules"], json!([])))
        .await
        .unwrap();
    let kept = store.get_value("", "system:heapster").await.unwrap();
    change(store, &kept, MANAGER, |v| {
        v.set(&["rules"], json!([]));
        v.set(&["metadata", "annotations", AUTOUPDATE], "false");
    })
    .await
    .unwrap();
    let bindings = r.plane.store(GROUP, "clusterrolebindings");
    bindings
        .delete(&Context::system(""), "system:kube-dns", &DeleteOptions::default())
        .await
        .unwrap();
    let mut other = by_name(&objects()[1], "system:kube-dns").clone();
    other.set(&["roleRef", "name"], "view");
    create_if_missing(bindings, other, MANAGER).await.unwrap();

    ensure(&r.plane).await.unwrap();
    let role = store.get_value("", "system:kube-dns").await.unwrap();
    assert_eq!(role.get("rules").items().len(), 4, "one rule per missing grant");
    let kept = store.get_value("", "system:heapster").await.unwrap();
    assert!(kept.get("rules").items().is_empty());
    let binding = bindings.get_value("", "system:kube-dns").await.unwrap();
    assert_eq!(binding.str_at(&["roleRef", "name"]), "system:kube-dns");
}
