//! What the selectors of watches may cost: per poll, and while a lock is held.

use super::*;
use crate::storage::select::{STEPS_PER_POLL, Select};
use futures_util::FutureExt as _;
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
