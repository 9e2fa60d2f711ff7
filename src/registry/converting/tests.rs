mod extracted;
mod flights;
mod selected;
mod watched;

use super::*;
use crate::apimachinery::object::ObjectView;
use crate::storage::embedded::{Engine, Options, ResourceConfig};
use crate::storage::{
    Draft, Entry, Error, Event, EventType, ListOptions, MinRevision, Precondition, Predicate, Revision, Storage,
    WatchItem, WatchOptions,
};
use crate::sync::Mutex;
use futures_util::FutureExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A built-in pair.
struct Renamed;

impl Pair for Renamed {
    fn hub(&self) -> String {
        "events.k8s.io/v1".to_owned()
    }
    fn spoke(&self) -> String {
        "v1".to_owned()
    }
    fn serve(&self, mut v: Value) -> Value {
        let note = v.unset(&["note"]).unwrap_or_default();
        v.set(&["message"], note);
        v.set(&["apiVersion"], "v1");
        v
    }
    fn store(&self, mut v: Value) -> Value {
        let message = v.unset(&["message"]).unwrap_or_default();
        v.set(&["note"], message);
        v.set(&["apiVersion"], "events.k8s.io/v1");
        v
    }
    fn field_names(&self) -> RenameField {
        |stored| (stored == "note").then_some("message")
    }
}

fn selectable(name: &'static str) -> SelectableFields {
    SelectableFields {
        names: Arc::new([Str::new(name)]),
        extract: Arc::new(move |v: &Value| {
            let path: Vec<&str> = name.split('.').collect();
            vec![(name.into(), v.str_at(&path).into())]
        }),
        unstored: None,
    }
}

struct Stored {
    engine: Arc<Engine>,
    storage: Arc<dyn Storage>,
    _dir: tempfile::TempDir,
}

fn stored() -> Stored {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Options::default()).unwrap();
    let storage = engine.resource(ResourceConfig {
        prefix: "/registry/things/".to_owned(),
        fields: None,
        compressed: false,
    });
    Stored {
        engine,
        storage,
        _dir: dir,
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

fn from_the_beginning() -> WatchOptions {
    WatchOptions {
        prefix: String::new(),
        single: false,
        predicate: Predicate::default(),
        since: Some(Revision(1)),
        initial: None,
        bookmarks: false,
        until: None,
    }
}

async fn write(storage: &Arc<dyn Storage>, key: &str, v: &Value) -> Arc<Entry> {
    let draft = Draft::new(v, vec![]);
    storage.put(key, Precondition::Absent, draft, None).await.unwrap()
}

#[tokio::test]
async fn both_versions_of_a_pair_read_and_write_the_same_object() {
    let stored = stored();
    let kind = PairConversion(Arc::new(Renamed)).versions(Some(selectable("note")));
    let served: Arc<dyn Storage> = Arc::new(ConvertingStorage::new(
        stored.storage.clone(),
        Arc::new(kind),
        PairConversion::SPOKE,
    ));
    let v = crate::json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "m"});
    let put = write(&served, "ns/a", &v).await;
    assert_eq!(put.field("message"), Some("m"));
    let there = stored.storage.get("ns/a", MinRevision::Latest).await.unwrap();
    let there = there.unwrap().decode();
    assert_eq!(
        (there.api_version(), there.str_at(&["note"])),
        ("events.k8s.io/v1", "m")
    );
    let taken = served
        .put("ns/a", Precondition::Absent, Draft::new(&v, vec![]), None)
        .await;
    assert!(matches!(taken, Err(Error::Conflict(Some(e))) if e.decode().str_at(&["message"]) == "m"));
    let selected = |message: &'static str| ListOptions {
        predicate: Predicate(Some(Arc::new(move |e: &Entry| e.field("message") == Some(message)))),
        ..ListOptions::latest("ns")
    };
    assert_eq!(served.list(selected("m")).await.unwrap().entries.len(), 1);
    assert_eq!(served.list(selected("n")).await.unwrap().entries.len(), 0);
    let gone = served.delete("ns/a", put.revision).await.unwrap();
    assert_eq!(gone.decode().api_version(), "v1");
}

#[tokio::test]
async fn a_preview_equals_the_result_of_a_write() {
    for conversion in conversions() {
        let (stored, kind) = (stored(), versions(&conversion, 0));
        let (v1, v2) = (over(&stored, &kind, 0), over(&stored, &kind, 1));
        let object = thing("g/v2", "a", "x");
        let preview = v2.preview(&object).await.unwrap().unwrap();
        // The default of the stored version.
        assert_eq!(preview.at(&["spec", "size"]), &1i64.into());
        let mut written = write(&v2, "a", &object).await.decode();
        written.unset_meta("resourceVersion");
        assert_eq!(preview, written);
        assert_eq!(v1.preview(&thing("g/v1", "b", "x")).await.unwrap(), None);
        let mut old = object;
        old.set_meta("resourceVersion", "7");
        assert_eq!(v2.preview(&old).await.unwrap().unwrap().resource_version(), "7");
        assert!(v2.preview(&thing("g/v2", "bad", "x")).await.is_err());
    }
}

// ── a kind with three versions over one storage ──

/// Versions declare other fields: v1 `spec.one`, v2 `spec.two`; every version defaults `spec.size`.
struct Own(&'static str);

impl Shape for Own {
    fn read(&self, object: &mut Value) {
        self.converted(object);
        if object.at(&["spec", "size"]).is_null() {
            object.set(&["spec", "size"], 1i64);
        }
    }
    fn converted(&self, object: &mut Value) {
        let known = object.at(&["spec", self.0]).clone();
        let size = object.at(&["spec", "size"]).clone();
        object.set(&["spec"], Value::object());
        for (k, v) in [(self.0, known), ("size", size)] {
            if !v.is_null() {
                object.set(&["spec", k], v);
            }
        }
    }
    fn fingerprint(&self) -> u64 {
        self.0.len() as u64 * 100 + u64::from(self.0.as_bytes()[0])
    }
}

/// Renames the field. Objects named `bad…` cannot be converted. Records the number of objects of each call.
#[derive(Default)]
struct Renaming {
    calls: Mutex<Vec<usize>>,
    later: bool,
    relabels: bool,
    threads: Mutex<Vec<std::thread::ThreadId>>,
}

fn field(api_version: &str) -> &'static str {
    match api_version {
        "g/v1" => "one",
        "g/v2" => "two",
        _ => "three",
    }
}

impl Conversion for Renaming {
    fn convert(&self, objects: Vec<Value>, to: &KindVersion) -> Converting {
        self.calls.lock().push(objects.len());
        self.threads.lock().push(std::thread::current().id());
        let to = to.api_version.clone();
        let relabels = self.relabels;
        let convert = move |mut o: Value| {
            if o.name().starts_with("bad") {
                return Err(NotConverted(format!("cannot convert {}", o.name())));
            }
            let value = o.unset(&["spec", field(o.api_version())]).unwrap_or_default();
            o.set(&["spec", field(&to)], value);
            o.set(&["apiVersion"], to.as_str());
            if relabels {
                o.set(&["metadata", "labels", "by"], to.as_str());
            }
            Ok(o)
        };
        let converted = objects.into_iter().map(convert).collect();
        match self.later {
            true => Converting::Pending(
                async move {
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    converted
                }
                .boxed(),
            ),
            false => Converting::Done(converted),
        }
    }

    fn keeps_labels(&self) -> bool {
        !self.relabels
    }

    fn asks_others(&self) -> bool {
        self.later
    }
}

fn versions(conversion: &Arc<Renaming>, stored: usize) -> Arc<KindVersions> {
    let version = |n: &str, own: &'static str| KindVersion {
        api_version: format!("g/{n}").into(),
        shape: Some(Arc::new(Own(own))),
        fields: Some(selectable(match own {
            "one" => "spec.one",
            "two" => "spec.two",
            _ => "spec.three",
        })),
    };
    Arc::new(KindVersions {
        versions: vec![version("v1", "one"), version("v2", "two"), version("v3", "three")],
        stored,
        conversion: conversion.clone(),
    })
}

fn thing(version: &str, name: &str, value: &str) -> Value {
    let mut v = crate::json!({"apiVersion": version, "kind": "Thing", "metadata": {"name": name}, "spec": {}});
    v.set(&["spec", field(version)], value);
    v
}

fn over(stored: &Stored, kind: &Arc<KindVersions>, served: usize) -> Arc<dyn Storage> {
    Arc::new(ConvertingStorage::new(stored.storage.clone(), kind.clone(), served))
}

fn calls(of: &Renaming) -> Vec<usize> {
    std::mem::take(&mut *of.calls.lock())
}

fn conversions() -> [Arc<Renaming>; 2] {
    [false, true].map(|later| {
        Arc::new(Renaming {
            later,
            ..Renaming::default()
        })
    })
}

#[tokio::test]
async fn a_list_of_mixed_versions_converts_the_others_in_one_call() {
    for conversion in conversions() {
        let stored = stored();
        let kind = versions(&conversion, 1);
        for (version, name) in [("g/v1", "a"), ("g/v2", "b"), ("g/v3", "c"), ("g/v1", "d")] {
            write(&stored.storage, name, &thing(version, name, name)).await;
        }
        let v2 = over(&stored, &kind, 1);
        let listed = v2.list(ListOptions::latest("")).await.unwrap().entries;
        let seen: Vec<_> = listed.iter().map(|e| e.decode()).collect();
        for object in &seen {
            assert_eq!(object.api_version(), "g/v2");
            assert_eq!(object.str_at(&["spec", "two"]), object.name());
            assert_eq!(object.at(&["spec", "size"]), &1i64.into(), "defaults are set on read");
        }
        assert_eq!(calls(&conversion), [3]);
        // Conversions are shared by later readers.
        let again = v2.list(ListOptions::latest("")).await.unwrap().entries;
        assert!(listed.iter().zip(&again).all(|(a, b)| Arc::ptr_eq(a, b)));
        assert_eq!(calls(&conversion), [0usize; 0]);
    }
}

#[tokio::test]
async fn bytes_in_the_served_version_and_shape_are_served_as_they_are() {
    let stored = stored();
    let conversion = Arc::new(Renaming::default());
    let kind = versions(&conversion, 0);
    let v1 = over(&stored, &kind, 0);
    let mut v = thing("g/v1", "a", "x");
    v.set(&["spec", "size"], 5i64);
    let put = write(&v1, "a", &v).await;
    let raw = stored.storage.get("a", MinRevision::Any).await.unwrap().unwrap();
    assert_eq!(put.json().as_ptr(), raw.json().as_ptr());
    for _ in 0..2 {
        let got = v1.get("a", MinRevision::Any).await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&got, &raw));
    }
    // Another schema, as after a change of the definition, makes the bytes be checked again.
    let mut other = KindVersions {
        versions: kind.versions.clone(),
        stored: 0,
        conversion: conversion.clone(),
    };
    other.versions[0].shape = Some(Arc::new(Own("gone")));
    let got = over(&stored, &Arc::new(other), 0).get("a", MinRevision::Any).await;
    assert!(got.unwrap().unwrap().decode().at(&["spec", "one"]).is_null());
    let got = v1.get("a", MinRevision::Any).await.unwrap().unwrap();
    assert_eq!(
        got.decode().str_at(&["spec", "one"]),
        "x",
        "what is not served is still stored"
    );
    assert_eq!(calls(&conversion), [0usize; 0]);
}

#[tokio::test]
async fn writes_convert_to_the_storage_version_and_back() {
    for conversion in conversions() {
        let stored = stored();
        let kind = versions(&conversion, 1);
        let v1 = over(&stored, &kind, 0);
        let put = write(&v1, "a", &thing("g/v1", "a", "x")).await;
        assert_eq!(put.decode().str_at(&["spec", "one"]), "x");
        let raw = stored.storage.get("a", MinRevision::Any).await.unwrap().unwrap();
        assert_eq!(raw.decode().str_at(&["spec", "two"]), "x");
        assert!(raw.decode().at(&["spec", "size"]).is_null(), "defaults are not stored");
        assert_eq!(calls(&conversion), [1, 1]);
        let bad = Draft::new(&thing("g/v1", "bad", "x"), vec![]);
        let refused = v1.put("bad", Precondition::Absent, bad, None).await.unwrap_err();
        assert!(matches!(refused, Error::NotConverted(why) if why == "cannot convert bad"));
        assert_eq!(stored.storage.count(), 1);
    }
}

#[tokio::test]
async fn a_write_stores_the_storage_version_though_nothing_else_changes() {
    let stored = stored();
    let conversion = Arc::new(Renaming::default());
    let kind = versions(&conversion, 1);
    let first = write(&stored.storage, "a", &thing("g/v1", "a", "x")).await;
    let v1 = over(&stored, &kind, 0);
    let mut revision = first.revision;
    for writes in [true, false] {
        let live = v1.get("a", MinRevision::Any).await.unwrap().unwrap();
        assert!(live.stale, "the registry must not take the update for a no-op");
        let draft = Draft::new(&live.decode(), vec![]);
        let put = v1
            .put("a", Precondition::Unchanged(live.revision), draft, None)
            .await
            .unwrap();
        assert_eq!(put.revision != revision, writes);
        revision = put.revision;
        let raw = stored
            .storage
            .get("a", MinRevision::Any)
            .await
            .unwrap()
            .unwrap()
            .decode();
        assert_eq!((raw.api_version(), raw.str_at(&["spec", "two"])), ("g/v2", "x"));
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_converted_fails_its_readers_only() {
    let stored = stored();
    let conversion = Arc::new(Renaming::default());
    let kind = versions(&conversion, 0);
    for name in ["a", "bad"] {
        write(&stored.storage, name, &thing("g/v1", name, "x")).await;
    }
    let (v1, v2) = (over(&stored, &kind, 0), over(&stored, &kind, 1));
    assert_eq!(v1.list(ListOptions::latest("")).await.unwrap().entries.len(), 2);
    assert!(v2.get("a", MinRevision::Any).await.is_ok());
    for failed in [
        v2.get("bad", MinRevision::Any).await.map(drop),
        v2.list(ListOptions::latest("")).await.map(drop),
    ] {
        assert!(matches!(failed, Err(Error::NotConverted(why)) if why == "cannot convert bad"));
    }
    write(&stored.storage, "old", &thing("g/v0", "old", "x")).await;
    let unknown = v1.get("old", MinRevision::Any).await.unwrap_err().to_string();
    assert_eq!(unknown, "request to convert CR from an invalid group/version: g/v0");
}

/// All versions have the same schema, as those of most definitions. Counts conversions.
#[derive(Default)]
struct OnlyVersion(AtomicUsize);

impl Conversion for OnlyVersion {
    fn convert(&self, mut objects: Vec<Value>, to: &KindVersion) -> Converting {
        self.0.fetch_add(1, Ordering::Relaxed);
        for object in &mut objects {
            object.set(&["apiVersion"], to.api_version.clone());
        }
        Converting::Done(Ok(objects))
    }

    fn changes_only_version(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn replacing_only_the_version_equals_a_conversion() {
    let stored = stored();
    let conversion = Arc::new(OnlyVersion::default());
    let version = |n: &str| KindVersion {
        api_version: n.into(),
        shape: Some(Arc::new(Own("one"))),
        fields: None,
    };
    let kind = Arc::new(KindVersions {
        versions: vec![version("g/v1"), version("g/v1alpha1")],
        stored: 0,
        conversion: conversion.clone(),
    });
    let mut v = thing("g/v1", "a", "x");
    v.set(&["spec", "size"], 5i64);
    v.set(&["metadata", "managedFields"], crate::json!([{"manager": "m"}]));
    v.set(&["metadata", "labels", "l"], "1");
    write(&stored.storage, "a", &v).await;
    let read = async || {
        over(&stored, &kind, 1)
            .get("a", MinRevision::Any)
            .await
            .unwrap()
            .unwrap()
    };
    let converted = read().await;
    // From now on the bytes are known to be in shape.
    over(&stored, &kind, 0).get("a", MinRevision::Any).await.unwrap();
    let respelled = read().await;
    assert_eq!(
        conversion.0.load(Ordering::Relaxed),
        1,
        "the second one needs no conversion"
    );
    assert_eq!(respelled.json(), converted.json());
    assert_eq!(
        (respelled.version_span, respelled.managed_span, &respelled.labels),
        (converted.version_span, converted.managed_span, &converted.labels)
    );
    assert_eq!(respelled.decode().api_version(), "g/v1alpha1");
}
