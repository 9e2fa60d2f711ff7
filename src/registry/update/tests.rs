use super::*;
use crate::admission::{Admission, AdmitAll, Attributes};
use crate::controlplane::reviews::NoStorage;
use crate::registry::testing::{config_maps, embedded};
use crate::sync::Mutex;
use async_trait::async_trait;

#[test]
fn timestamp_only_changes_are_dropped() {
    let old = crate::json!({"metadata": {"managedFields": [{"manager": "a", "time": "1"}], "resourceVersion": "1"}, "data": 1});
    let mut new = crate::json!({"metadata": {"managedFields": [{"manager": "a", "time": "2"}], "resourceVersion": "1"}, "data": 1});
    forget_new_times(&mut new, &old);
    assert_eq!(new, old);
    let mut other = crate::json!({"metadata": {"managedFields": [{"manager": "a", "time": "2"}], "resourceVersion": "1"}, "data": 2});
    forget_new_times(&mut other, &old);
    assert_eq!(
        other.at(&["metadata", "managedFields"]).items()[0].str_at(&["time"]),
        "2"
    );
}

/// Keeps the last object that the validating phase was given.
#[derive(Default)]
struct Recording(Mutex<Value>);

#[async_trait]
impl Admission for Recording {
    async fn validate(&self, _attributes: &Attributes, object: &Value) -> Result<()> {
        *self.0.lock() = object.clone();
        Ok(())
    }
}

#[tokio::test]
async fn validating_admission_sees_the_old_times_of_an_update_that_changes_nothing() {
    let (storage, engine, _dir) = embedded();
    let seen = Arc::new(Recording::default());
    let store = Store::new(Arc::new(config_maps().build()), storage, seen.clone());
    let cx = Context::system("ns");
    let object = crate::json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let made = store.create_value(&cx, object).await.unwrap();
    let at = ["metadata", "managedFields"];
    assert_eq!(made.at(&at).items().len(), 1);
    let mut later = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        let mut managed = new.at(&at).items().to_vec();
        managed[0].set(&["time"], "2100-01-01T00:00:00Z");
        new.set(&at, managed);
        Ok(new)
    };
    let updated = store
        .update(&cx, "a", &mut later, false, &WriteOptions::default())
        .await
        .unwrap();
    assert_eq!(updated.object.to_value(), made);
    assert_eq!(seen.0.lock().at(&at), made.at(&at));
    engine.shutdown();
}

#[tokio::test]
async fn a_status_of_another_kind_drops_the_managed_fields() {
    let (storage, engine, _dir) = embedded();
    let mut row = config_maps().status().build();
    row.unstructured = true;
    let store = Store::new(Arc::new(row), storage, Arc::new(AdmitAll));
    let cx = Context::system("ns");
    let object = crate::json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    store.create_value(&cx, object).await.unwrap();
    let options = WriteOptions {
        manager: Some("m".to_owned()),
        subresource: "status".to_owned(),
        ..WriteOptions::default()
    };
    let mut renamed = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        new.set(&["kind"], "X");
        Ok(new)
    };
    let updated = store.update(&cx, "a", &mut renamed, false, &options).await.unwrap();
    let updated = updated.object.to_value();
    assert_eq!(updated.str_at(&["kind"]), "ConfigMap");
    assert!(updated.at(&["metadata", "managedFields"]).is_null());
    engine.shutdown();
}

#[test]
fn an_update_removes_a_terminating_object_without_finalizers() {
    let store = Store::new(Arc::new(config_maps().build()), Arc::new(NoStorage), Arc::new(AdmitAll));
    let marked = |grace: i64| {
        crate::json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": grace}})
    };
    let held = crate::json!({"metadata": {"finalizers": ["a/b"]}});
    assert!(goes_with(&store, &marked(0), &marked(0)));
    assert!(
        !goes_with(&store, &marked(0), &marked(30)),
        "its period is still running"
    );
    assert!(!goes_with(&store, &held, &marked(0)));
    assert!(!goes_with(&store, &marked(0), &held), "it was not marked");
}
