//! Bounds on the cost of the selectors of watches: per poll, per event, and while a lock is held.

use super::*;
use crate::storage::select::{STEPS_PER_POLL, Select};
use futures_util::FutureExt as _;
use std::hash::{Hash as _, Hasher};
use std::sync::atomic::AtomicUsize;

/// Selects nothing, with a quarter of a poll's steps per evaluation. Counts the evaluations.
#[derive(Default)]
struct Long(AtomicUsize);

impl Select for Long {
    fn matches(&self, _: &Entry) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn terms(&self) -> usize {
        STEPS_PER_POLL / 4
    }
}

#[tokio::test]
async fn a_poll_ends_when_its_steps_are_spent() {
    let mut feed = Feed::new(Bounds::default());
    for i in 0..50 {
        feed.put(&format!("ns/{i}"));
    }
    for (initial, since) in [(Some(MinRevision::Any), None), (None, Some(Revision(1)))] {
        let long = Arc::new(Long::default());
        let mut watch = feed.watch(WatchOptions {
            predicate: Predicate(Some(long.clone())),
            initial,
            since,
            ..WatchOptions::all()
        });
        let mut polls = 0;
        while long.0.load(Ordering::Relaxed) < 50 && polls < 100 {
            let before = long.0.load(Ordering::Relaxed);
            assert!(watch.next().now_or_never().is_none(), "nothing is selected");
            // The reader asks for more in the same poll.
            assert!(watch.try_next().is_none());
            let evaluated = long.0.load(Ordering::Relaxed) - before;
            assert!((1..=4).contains(&evaluated), "{evaluated} evaluations in a poll");
            polls += 1;
        }
        assert_eq!(long.0.load(Ordering::Relaxed), 50, "it went on in further polls");
    }
}

#[tokio::test]
async fn selectors_are_evaluated_without_the_hubs_lock() {
    let mut feed = Feed::new(Bounds::default());
    let (cacher, locked) = (Arc::downgrade(&feed.cacher), Arc::new(AtomicUsize::new(0)));
    let counted = locked.clone();
    let predicate = move |_: &Entry| {
        let cacher = cacher.upgrade().expect("the test holds it");
        counted.fetch_add(usize::from(cacher.hub.try_lock().is_none()), Ordering::Relaxed);
        true
    };
    let mut watch = feed.watch(WatchOptions {
        predicate: Predicate(Some(Arc::new(predicate))),
        ..WatchOptions::all()
    });
    feed.put("ns/a");
    feed.put("ns/a");
    assert!(watch.next().await.is_some() && watch.next().await.is_some());
    assert_eq!(locked.load(Ordering::Relaxed), 0);
}

/// Selects the objects with this text in their keys; equal to others with the same text. Counts the evaluations.
struct Containing(&'static str, Arc<AtomicUsize>);

impl Select for Containing {
    fn matches(&self, entry: &Entry) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed);
        entry.key.contains(self.0)
    }

    fn identify(&self, mut hasher: &mut dyn Hasher) -> bool {
        self.0.hash(&mut hasher);
        true
    }
}

/// The types of the changes that the watch can deliver now.
fn types(watch: &mut CacheWatch) -> Vec<EventType> {
    let items = std::iter::from_fn(|| watch.try_next());
    let kind = |item| match item {
        WatchItem::Change(kind, _) => Some(kind),
        _ => None,
    };
    items.filter_map(kind).collect()
}

#[test]
fn a_selector_is_evaluated_once_for_all_watches_that_have_it() {
    const WATCHES: usize = 300;
    for (prefix, single) in [("", false), ("ns/", false), ("ns/a", true), ("n", false)] {
        let mut feed = Feed::new(Bounds::default());
        let evaluated = Arc::new(AtomicUsize::new(0));
        let watch = |feed: &Feed, text| {
            feed.watch(WatchOptions {
                prefix: prefix.into(),
                single,
                // Each has its own, as watches of different requests have.
                predicate: Predicate(Some(Arc::new(Containing(text, evaluated.clone())))),
                ..WatchOptions::all()
            })
        };
        let mut others = Vec::new();
        let mut selecting = Vec::new();
        for _ in 0..WATCHES {
            others.push(watch(&feed, "elsewhere"));
            selecting.push(watch(&feed, "a"));
        }
        feed.put("ns/a");
        assert_eq!(evaluated.swap(0, Ordering::Relaxed), 2, "two selectors, {prefix:?}");
        feed.put("ns/a");
        assert_eq!(evaluated.swap(0, Ordering::Relaxed), 4, "two states each");
        let expected = [EventType::Added, EventType::Modified];
        assert!(selecting.iter_mut().all(|watch| types(watch) == expected));
        assert!(others.iter_mut().all(|watch| types(watch).is_empty()));
        // The one whose selector was evaluated may be any of them.
        while selecting.len() > 1 {
            selecting.swap_remove(0);
            feed.delete("ns/a");
            assert_eq!(evaluated.swap(0, Ordering::Relaxed), 2);
            feed.put("ns/a");
            assert_eq!(evaluated.swap(0, Ordering::Relaxed), 2);
            selecting.truncate(selecting.len() / 4 + 1);
        }
        assert!(types(&mut selecting[0]).len() > 4);
    }
}

#[test]
fn a_selector_that_cannot_be_compared_is_equal_to_itself_only() {
    let mut feed = Feed::new(Bounds::default());
    let evaluated = Arc::new(AtomicUsize::new(0));
    let [one, other] = [(); 2].map(|()| Predicate(Some(Arc::new(OnNode("a", evaluated.clone())))));
    let mut watches = [one.clone(), one, other].map(|predicate| {
        feed.watch(WatchOptions {
            predicate,
            ..WatchOptions::all()
        })
    });
    feed.revision += 1;
    let entry = on_node("ns/a", "a", feed.revision);
    feed.publish(&[Arc::new(Event::new(entry, None, false))]);
    assert_eq!(evaluated.load(Ordering::Relaxed), 2);
    assert!(watches.iter_mut().all(|watch| types(watch) == [EventType::Added]));
}

#[test]
fn watches_with_the_same_selector_start_at_their_own_revisions() {
    let mut feed = Feed::new(Bounds::default());
    let mut watches = [1, 3, 9].map(|since| {
        feed.watch(WatchOptions {
            since: Some(Revision(since)),
            ..WatchOptions::all()
        })
    });
    let batch: Vec<_> = (0..3).map(|i| feed.event(None, &format!("ns/{i}"), false)).collect();
    assert_eq!(batch[2].entry.revision, Revision(4));
    feed.publish(&batch);
    assert_eq!(watches.each_mut().map(|watch| types(watch).len()), [3, 1, 0]);
}
