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
fn decisions_match_the_table() {
    let (none, ours, always) = (service(None), service(Some("onstart")), service(Some("true")));
    use Requirement::{Always, AtStart, Never};
    for (current, wanted, from_before, action) in [
        (None, Never, false, Action::Nothing),
        (None, AtStart, false, Action::Create),
        (None, Always, false, Action::Create),
        (Some(&none), AtStart, true, Action::Nothing),
        (Some(&none), Always, true, Action::Nothing),
        (Some(&none), Never, true, Action::Nothing),
        (Some(&ours), AtStart, false, Action::Nothing),
        (Some(&ours), Never, false, Action::Nothing),
        (Some(&ours), Always, false, Action::Nothing),
        (Some(&ours), Never, true, Action::Delete),
        (Some(&ours), AtStart, true, Action::Update),
        (Some(&ours), Always, true, Action::Update),
        (Some(&always), Never, false, Action::Delete),
        (Some(&always), AtStart, false, Action::Update),
        (Some(&always), Always, false, Action::Update),
    ] {
        assert_eq!(decide(current, wanted, from_before), action, "{current:?} {wanted:?}");
    }
}

#[test]
fn listed_group_version_paths_become_apiservices() {
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
fn groups_that_are_not_built_in_have_their_own_priorities() {
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
async fn start_creates_missing_apiservices_and_removes_obsolete_ones() {
    let store = MemoryStorage::new();
    store.set(
        "v1.old",
        &json!({"metadata": {"name": "v1.old", "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
                "spec": {"group": "old", "version": "v1"}}),
    );
    let (informer, feed) = Informer::new(store.clone(), ApiService::from_entry);
    let paths = ["/api/v1".to_owned(), "/apis/apps/v1".to_owned()];
    let (definitions, _feed) = Informer::new(MemoryStorage::new(), Definition::from_entry);
    let r = registering(&informer, &definitions, &store, &paths);
    let _tasks = running([feed.run()]);
    informer.synced().wait().await;
    assert_eq!(
        r.completion().unwrap_err().to_string(),
        "missing APIService: [v1. v1.apps]"
    );
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

fn registering(
    informer: &Informer<ApiService>,
    definitions: &Informer<Definition>,
    store: &Arc<MemoryStorage>,
    paths: &[String],
) -> Arc<AutoRegister> {
    let telemetry = crate::telemetry::Telemetry::new();
    let queues = ["autoregister", "crd_autoregistration_controller"].map(|name| telemetry.queue(name));
    let writer = Arc::new(Writer(store.clone()));
    AutoRegister::new(informer.clone(), definitions, writer, paths, &[], queues)
}

fn definition(served: bool) -> Value {
    json!({"metadata": {"name": "things.g"},
           "spec": {"group": "g", "versions": [{"name": "v1", "served": (served)}]},
           "status": {"conditions": [{"type": "Established", "status": "True"}]}})
}

/// Yields until `f` holds.
async fn until(what: &str, f: impl Fn() -> bool) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(60);
    while !f() {
        assert!(tokio::time::Instant::now() < limit, "{what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn crd_apiservices_are_created_and_restored_but_never_taken_over() {
    let (store, defined) = (MemoryStorage::new(), MemoryStorage::new());
    let left_over = json!({"metadata": {"name": "v1.gone", "labels": {"kube-aggregator.kubernetes.io/automanaged": "true"}},
                           "spec": {"group": "gone", "version": "v1"}});
    store.set("v1.gone", &left_over);
    let (informer, feed) = Informer::new(store.clone(), ApiService::from_entry);
    let (definitions, feed_definitions) = Informer::new(defined.clone(), Definition::from_entry);
    let r = registering(&informer, &definitions, &store, &[]);
    defined.set("things.g", &definition(true));
    let mut tasks = running([feed.run()]);
    tasks.spawn(feed_definitions.run());
    informer.synced().wait().await;
    definitions.synced().wait().await;
    let stop = Signal::new("test");
    let (keeping, stopping) = (r.clone(), stop.clone());
    tasks.spawn(async move { keeping.keep(&stopping).await });
    let priority = |store: &MemoryStorage| {
        let object = store.object("v1.g")?;
        object.at(&["spec", "groupPriorityMinimum"]).as_i64()
    };
    until("obsolete APIServices are deleted", || store.object("v1.gone").is_none()).await;
    until("defined APIServices are created", || priority(&store) == Some(1000)).await;
    let made = store.object("v1.g").unwrap();
    assert_eq!(made.at(&["metadata", "labels", AUTOMANAGED]).as_str(), Some("true"));

    let mut edited = made.clone();
    edited.set(&["spec", "groupPriorityMinimum"], 7);
    store.set("v1.g", &edited);
    until("an edit is reverted", || priority(&store) == Some(1000)).await;
    store.remove("v1.g");
    until("a deletion is undone", || priority(&store) == Some(1000)).await;

    // A user takes the APIService over.
    let mut taken = store.object("v1.g").unwrap();
    taken.unset(&["metadata", "labels", AUTOMANAGED]);
    taken.set(&["spec", "groupPriorityMinimum"], 7);
    store.set("v1.g", &taken);
    defined.set("things.g", &definition(false));
    defined.set("others.h", &{
        let mut d = definition(true);
        d.set(&["spec", "group"], "h");
        d
    });
    until("others are made", || store.object("v1.h").is_some()).await;
    assert_eq!(priority(&store), Some(7), "it is not ours any more");
    defined.remove("others.h");
    until("the last definition's end", || store.object("v1.h").is_none()).await;
    stop.fire();
}
