//! Lists and watches with field selectors, which are tested in the served version.

use super::reader::Reader;
use super::selection::{Reading, Selection};
use super::*;
use crate::storage::Select;
use std::hash::{DefaultHasher, Hasher};

fn selecting(name: &'static str, value: &'static str) -> Predicate {
    Predicate(Some(Arc::new(move |e: &Entry| {
        e.field(name).or_else(|| e.label(name)) == Some(value)
    })))
}

#[tokio::test]
async fn fields_are_selected_in_the_served_version() {
    let stored = stored();
    let conversion = Arc::new(Renaming::default());
    let kind = versions(&conversion, 0);
    for i in 0..20 {
        let (name, value) = (format!("n{i:02}"), ["x", "y"][i % 2]);
        let version = ["g/v1", "g/v2"][i / 2 % 2];
        write(&stored.storage, &name, &thing(version, &name, value)).await;
    }
    let v2 = over(&stored, &kind, 1);
    let mut options = ListOptions {
        predicate: selecting("spec.two", "y"),
        limit: 3,
        ..ListOptions::latest("")
    };
    let mut names = Vec::new();
    loop {
        let page = v2.list(options.clone()).await.unwrap();
        assert!(page.entries.len() <= 3 && page.remaining.is_none());
        names.extend(page.entries.iter().map(|e| e.name().to_owned()));
        let Some(next) = page.next else { break };
        options.token = Some(next);
    }
    let odd: Vec<String> = (0..10).map(|i| format!("n{:02}", 2 * i + 1)).collect();
    assert_eq!(names, odd);
    let none = ListOptions {
        predicate: selecting("spec.one", "y"),
        ..ListOptions::latest("")
    };
    assert!(v2.list(none).await.unwrap().entries.is_empty(), "v2 has no such field");
}

#[tokio::test]
async fn a_filtered_watch_selects_objects_in_the_served_version() {
    for relabels in [false, true] {
        let stored = stored();
        let conversion = Arc::new(Renaming {
            relabels,
            ..Renaming::default()
        });
        let kind = versions(&conversion, 0);
        let v2 = over(&stored, &kind, 1);
        let predicate = match relabels {
            true => selecting("by", "g/v2"),
            false => selecting("spec.two", "y"),
        };
        let mut watch = v2
            .watch(WatchOptions {
                predicate,
                ..from_the_beginning()
            })
            .await
            .unwrap();
        let mut revision = write(&stored.storage, "a", &thing("g/v1", "a", "x")).await.revision;
        for value in ["y", "x"] {
            let draft = Draft::new(&thing("g/v1", "a", value), vec![]);
            let put = stored.storage.put("a", Precondition::Unchanged(revision), draft, None);
            revision = put.await.unwrap().revision;
        }
        let expected: &[(EventType, &str)] = match relabels {
            true => &[
                (EventType::Added, "x"),
                (EventType::Modified, "y"),
                (EventType::Modified, "x"),
            ],
            // Leaving the selection shows the last state that was selected.
            false => &[(EventType::Added, "y"), (EventType::Deleted, "y")],
        };
        let mut types = Vec::new();
        while types.len() < expected.len()
            && let Some(WatchItem::Change(t, event)) = watch.next().await
        {
            types.push((t, event.object(t).decode().str_at(&["spec", "two"]).to_owned()));
        }
        let types: Vec<_> = types.iter().map(|(t, v)| (*t, v.as_str())).collect();
        assert_eq!(types, expected);
    }
}

#[tokio::test]
async fn a_filtered_watch_tests_entries_read_after_their_event() {
    let stored = stored();
    let kind = versions(&Arc::new(Renaming::default()), 0);
    let v1 = over(&stored, &kind, 0);
    let mut watch = v1
        .watch(WatchOptions {
            predicate: selecting("spec.one", "y"),
            ..from_the_beginning()
        })
        .await
        .unwrap();
    let mut revision = write(&stored.storage, "a", &thing("g/v1", "a", "y")).await.revision;
    // Reading the object finds out that it is served as it is stored.
    v1.get("a", MinRevision::Any).await.unwrap();
    for value in ["x", "z"] {
        let draft = Draft::new(&thing("g/v1", "a", value), vec![]);
        let put = stored.storage.put("a", Precondition::Unchanged(revision), draft, None);
        revision = put.await.unwrap().revision;
        v1.get("a", MinRevision::Any).await.unwrap();
    }
    let mut types = Vec::new();
    while types.len() < 2
        && let Some(WatchItem::Change(t, event)) = watch.next().await
    {
        types.push((t, event.object(t).decode().str_at(&["spec", "one"]).to_owned()));
    }
    let types: Vec<_> = types.iter().map(|(t, v)| (*t, v.as_str())).collect();
    assert_eq!(types, [(EventType::Added, "y"), (EventType::Deleted, "y")]);
}

/// Selects nothing; equal to others with the same number.
struct Numbered(u8);

impl Select for Numbered {
    fn matches(&self, _: &Entry) -> bool {
        false
    }

    fn identify(&self, hasher: &mut dyn Hasher) -> bool {
        hasher.write_u8(self.0);
        true
    }
}

#[test]
fn equal_selectors_on_one_version_are_equal_for_the_storage_below() {
    let (things, events) = (versions(&Arc::default(), 0), PairConversion(Arc::new(Renamed)));
    for kind in [things, Arc::new(events.versions(Some(selectable("note"))))] {
        let readers = [0, 1].map(|served| Arc::new(Reader::new(kind.clone(), served, None)));
        let identity = |served: usize, number| {
            let selector = Predicate(Some(Arc::new(Numbered(number))));
            let selection = Selection::new(&kind, &readers[served], &selector, Reading::Watch);
            let mut hasher = DefaultHasher::new();
            let below = selection.before.0.expect("all of the selector");
            assert!(below.identify(&mut hasher));
            hasher.finish()
        };
        assert_eq!(identity(0, 1), identity(0, 1));
        assert_ne!(identity(0, 1), identity(0, 2));
        let served_alike = kind.conversion.stored_fields().is_some();
        assert_eq!(identity(0, 1) == identity(1, 1), served_alike);
    }
}
