use super::*;
use crate::aggregator::testing::{MemoryStorage, Writer, running};
use crate::json;

fn service(label: Option<&str>) -> ApiService {
    let mut object = json!({"metadata": {"name": "v1.apps"}, "spec": {"group": "apps", "version": "v1"}});
    if let Some(label) = label {
        object.set(&["metadata", "labels", AUTOMANAGED], label);
    }
    ApiService::from_value(&object)
}

#[test]
fn each_cell_of_the_decision_table_holds() {
    let (none, ours, always) = (service(None), service(Some("onstart")), service(Some("true")));
    for (current, wanted, from_before, action) in [
        (None, false, false, Action::Nothing),
        (None, true, false, Action::Create),
        (Some(&none), true, true, Action::Nothing),
        (Some(&always), false, true, Action::Nothing),
        (Some(&ours), true, false, Action::Nothing),
        (Some(&ours), false, false, Action::Nothing),
        (Some(&ours), false, true, Action::Delete),
        (Some(&ours), true, true, Action::Update),
    ] {
        assert_eq!(decide(current, wanted, from_before), action);
    }
}

#[test]
fn listed_paths_of_group_versions_make_apiservices() {
    let names: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/unknown.io/v1",
        "/healthz",
    ]
    .iter()
    .filter_map(|p| desired(p, &[]))
    .map(|(name, _)| name.to_string())
    .collect();
    assert_eq!(names, ["v1.", "v1.apps"]);
    assert_eq!(
        desired("/apis/autoscaling/v1", &[]).unwrap().1.get("spec"),
        &json!({"group": "autoscaling", "version": "v1", "groupPriorityMinimum": 17500, "versionPriority": 15})
    );
}

#[test]
fn a_group_of_ones_own_stands_where_it_says() {
    let own = [(
        GroupVersion::new("unknown.io", "v1"),
        Priorities { group: 7, version: 8 },
    )];
    assert_eq!(
        desired("/apis/unknown.io/v1", &own).unwrap().1.get("spec"),
        &json!({"group": "unknown.io", "version": "v1", "groupPriorityMinimum": 7, "versionPriority": 8})
    );
    assert_eq!(desired("/apis/unknown.io/v2", &own), None);
}

#[tokio::test]
async fn start_creates_what_is_missing_and_removes_what_is_no_longer_built_in() {
    let store = MemoryStorage::new();
    store.set(
        "v1.old",
        &json!({"metadata": {"name": "v1.old", "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
                "spec": {"group": "old", "version": "v1"}}),
    );
    let (informer, feed) = Informer::new(store.clone(), ApiService::from_entry);
    let paths = ["/api/v1".to_owned(), "/apis/apps/v1".to_owned()];
    let r = AutoRegister::new(informer.clone(), Arc::new(Writer(store.clone())), &paths, &[]);
    let _tasks = running([feed.run()]);
    informer.synced().wait().await;
    assert_eq!(r.completion(), Err("missing APIService: [v1. v1.apps]".into()));
    r.run().await;
    assert!(store.object("v1.old").is_none() && store.object("v1.").is_some());
    let apps = store.object("v1.apps").unwrap();
    assert_eq!(apps.at(&["metadata", "labels", AUTOMANAGED]).as_str(), Some("onstart"));
    assert_eq!(apps.at(&["spec", "groupPriorityMinimum"]).as_i64(), Some(17800));
    for name in ["v1.", "v1.apps"] {
        Writer(store.clone())
            .set_condition(name, &crate::aggregator::Condition::local())
            .await
            .unwrap();
    }
    while r.completion().is_err() {
        tokio::task::yield_now().await;
    }
}
