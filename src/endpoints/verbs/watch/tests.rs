use super::*;
use crate::apimachinery::value::Value;
use crate::endpoints::negotiate::Media;
use crate::endpoints::tests::support::row;
use crate::json;
use crate::registry::strategy::Plain;
use crate::storage::budget::WatchBounds;
use crate::storage::{Budget, Draft, Event, EventType, Revision};

/// A watch with these items, after which nothing happens.
struct Items(VecDeque<WatchItem>);

impl Watch for Items {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<WatchItem>> {
        self.0.pop_front().map_or(Poll::Pending, |item| Poll::Ready(Some(item)))
    }

    fn try_next(&mut self) -> Option<WatchItem> {
        self.0.pop_front()
    }
}

/// A stream of objects with this much data. In CBOR, in which nothing of them is shared.
fn stream(sizes: &[usize], permit: Option<WatchPermit>) -> Stream {
    let item = |size: &usize| {
        let object: Value = json!({"metadata": {"name": "a"}, "data": {"text": ("x".repeat(*size))}});
        WatchItem::Initial(Arc::new(Draft::new(&object, Vec::new()).into_entry("a", Revision(1))))
    };
    let resource = Arc::new(row("configmaps", "ConfigMap", "configmap", true, Arc::new(Plain)));
    Stream {
        watch: Box::new(Items(sizes.iter().map(item).collect())),
        initializing: None,
        frames: Encoder::Idle(Frames::new(resource, Media::Cbor, Representation::Object, false, false)),
        unencodable: false,
        pool: None,
        permit,
        _selectors: None,
        parts: VecDeque::new(),
        refused: false,
        timeout: Box::pin(tokio::time::sleep(Duration::from_secs(60))),
        metrics: None,
        ending: [None, None],
    }
}

/// The sizes of the chunks that are available, and whether the stream has ended then.
fn read(mut stream: Stream) -> (Vec<usize>, bool) {
    let mut chunks = Vec::new();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    loop {
        match stream.poll_chunk(&mut cx) {
            Poll::Ready(Some(chunk)) => chunks.push(chunk.len()),
            Poll::Ready(None) => return (chunks, true),
            Poll::Pending => return (chunks, false),
        }
    }
}

#[tokio::test]
async fn an_event_over_the_memory_limit_ends_the_stream() {
    let (all, ended) = read(stream(&[10, CHUNK, 10], None));
    assert_eq!((all.len(), ended), (3, false), "{all:?}");
    let bounds = WatchBounds {
        max_pinned_bytes: CHUNK,
        ..WatchBounds::default()
    };
    let budget = Budget::with_watch_bounds(1 << 20, 1 << 20, bounds);
    let permit = || budget.admit_watch("alice", 0, false).unwrap();
    let other = permit();
    // As much as the user's watches may hold: what follows of any of them is refused.
    let held = other.hold_frame(vec![0; CHUNK]);
    assert!(held.is_some());
    assert_eq!(read(stream(&[10, CHUNK, 10], Some(permit()))), (vec![all[0]], true));
    assert_eq!(
        read(stream(&[10, 10, CHUNK, 10], Some(permit()))),
        (vec![all[0] * 2], true)
    );
    assert_eq!(read(stream(&[CHUNK, 10], Some(permit()))), (vec![], true));
}

#[test]
fn the_longest_timeout_a_client_can_ask_for_is_bounded() {
    let minimum = Duration::from_secs(1800);
    let until = |seconds| Instant::now().checked_add(timeout(seconds, minimum));
    assert!(until(Some(i64::MAX.cast_unsigned())).is_some());
    assert_eq!(timeout(Some(7), minimum), Duration::from_secs(7));
    assert!((minimum..=minimum * 2).contains(&timeout(None, minimum)));
}

#[test]
fn the_weight_of_a_deletion_is_that_of_the_object_it_sends() {
    let entry = |size: usize, revision| {
        let object: Value = json!({"metadata": {"name": "a"}, "data": {"text": ("x".repeat(size))}});
        Arc::new(Draft::new(&object, Vec::new()).into_entry("a", Revision(revision)))
    };
    let resource = Arc::new(row("configmaps", "ConfigMap", "configmap", true, Arc::new(Plain)));
    let frames = Frames::new(resource, Media::Cbor, Representation::Object, false, false);
    let large = 1 << 20;
    for (t, before, now, deleted, is_heavy) in [
        (EventType::Deleted, large, 1, false, true),
        (EventType::Deleted, 1, large, false, false),
        (EventType::Deleted, 1, large, true, true),
        (EventType::Modified, large, 1, false, false),
        (EventType::Modified, 1, large, false, true),
    ] {
        let event = Event::new(entry(now, 2), Some(entry(before, 1)), deleted);
        let item = WatchItem::Change(t, Arc::new(event));
        assert_eq!(frames.is_heavy(&item), is_heavy, "{t:?} {before} {now} {deleted}");
    }
}
