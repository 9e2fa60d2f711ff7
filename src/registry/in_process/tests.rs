use super::*;
use crate::admission::AdmitAll;
use crate::json;
use crate::registry::testing::{config_maps, embedded};
use crate::storage::embedded::Engine;
use futures_util::FutureExt as _;

/// A store of config maps, with what it needs to live.
fn store() -> (Store, Arc<Engine>, tempfile::TempDir) {
    let (storage, engine, dir) = embedded();
    let store = Store::new(Arc::new(config_maps().build()), storage, Arc::new(AdmitAll));
    (store, engine, dir)
}

async fn create(store: &Store, namespace: &str, name: &str, text: &str) -> Value {
    let object = json!({"metadata": {"name": (name)}, "data": {"text": (text)}});
    let made = store.create_value(&Context::system(namespace), object).await;
    made.expect("the object is created")
}

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(ObjectView::name).collect()
}

#[tokio::test]
async fn a_list_has_the_objects_of_a_namespace_or_of_all() {
    let (store, engine, _dir) = store();
    create(&store, "one", "b", "").await;
    create(&store, "two", "a", "").await;
    // Large enough to be decoded off the reactor.
    create(&store, "two", "c", &"x".repeat(64 << 10)).await;
    assert_eq!(names(&store.list_values("one").await.unwrap()), ["b"]);
    assert_eq!(names(&store.list_values("two").await.unwrap()), ["a", "c"]);
    assert_eq!(names(&store.list_values("").await.unwrap()), ["b", "a", "c"]);
    engine.shutdown();
}

#[tokio::test]
async fn a_watch_sends_existing_objects_then_synced_then_changes() {
    let (store, engine, _dir) = store();
    let old = create(&store, "ns", "old", "").await;
    create(&store, "elsewhere", "other", "").await;
    let mut watch = store.watch_values("ns").await.unwrap();
    assert_eq!(watch.next().await, Some(StoreEvent::Applied(old)));
    assert_eq!(watch.next().await, Some(StoreEvent::Synced));

    let new = create(&store, "ns", "new", &"x".repeat(64 << 10)).await;
    // The first poll takes the event and begins to decode it elsewhere; the second future finds it again.
    let dropped = watch.next().now_or_never();
    assert!(dropped.is_none() || dropped == Some(Some(StoreEvent::Applied(new.clone()))));
    if dropped.is_none() {
        assert_eq!(watch.next().await, Some(StoreEvent::Applied(new)));
    }
    assert_eq!(store.delete_value(&Context::system("ns"), "old").await, Ok(true));
    let Some(StoreEvent::Deleted(gone)) = watch.next().await else {
        panic!("the deletion is the next event");
    };
    assert_eq!(gone.name(), "old");
    engine.shutdown();
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn an_object_that_has_changed_is_not_deleted_as_unchanged() {
    let (store, engine, _dir) = store();
    let cx = Context::system("");
    let read = create(&store, "ns", "a", "1").await;
    let in_namespace = Context::system("ns");
    let change = |live: &Value| {
        let mut new = live.clone();
        new.set(&["data", "text"], "2");
        Ok(new)
    };
    let changed = store.update_with(&in_namespace, "a", "", change).await.unwrap();
    assert_eq!(store.delete_unchanged(&cx, &read).await.unwrap_err().code, 409);
    assert_eq!(store.delete_unchanged(&cx, &changed).await, Ok(true));
    assert_eq!(store.delete_unchanged(&cx, &changed).await.unwrap_err().code, 404);
    engine.shutdown();
}

#[tokio::test]
async fn finalizers_hold_an_object_that_is_deleted() {
    let (store, engine, _dir) = store();
    let cx = Context::system("ns");
    let object = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    store.create_value(&cx, object).await.unwrap();
    assert_eq!(store.delete_value(&cx, "held").await, Ok(false));
    let held = store.get_value("ns", "held").await.unwrap();
    assert!(held.is_being_deleted());
    engine.shutdown();
}
