//! Conversions that take long: off the reactor, shared by their readers, and cancelled with the last one.

use super::*;
use crate::tasks::compute;

#[tokio::test]
async fn large_objects_are_converted_off_the_reactor_and_in_order() {
    let stored = stored();
    let conversion = Arc::new(Renaming::default());
    let kind = versions(&conversion, 0);
    let served = over(&stored, &kind, 1);
    let telemetry = crate::telemetry::Telemetry::new();
    let pool = compute::ComputePool::start(compute::Config::default(), telemetry.compute.clone()).unwrap();
    let watch = pool.within(pool.flow("reader"), served.watch(from_the_beginning()));
    let mut watch = watch.await.unwrap();
    for (name, value) in [("large", "m".repeat(40 << 10)), ("small", "m".to_owned())] {
        write(&stored.storage, name, &thing("g/v1", name, &value)).await;
        let Some(WatchItem::Change(_, event)) = watch.next().await else {
            panic!("both are delivered")
        };
        assert_eq!(&*event.entry.key, name);
    }
    let threads = conversion.threads.lock().clone();
    let here = std::thread::current().id();
    assert_eq!(threads.iter().map(|t| *t == here).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn readers_of_an_object_share_one_call() {
    let stored = stored();
    let [_, conversion] = conversions();
    let kind = versions(&conversion, 0);
    for name in ["a", "b", "bad"] {
        write(&stored.storage, name, &thing("g/v1", name, "x")).await;
    }
    let v2 = over(&stored, &kind, 1);
    let mut first = v2.get("a", MinRevision::Any).boxed();
    assert!((&mut first).now_or_never().is_none(), "it waits for the conversion");
    let others = futures_util::future::join_all((0..20).map(|_| v2.get("a", MinRevision::Any)));
    let mut others = others.boxed();
    assert!((&mut others).now_or_never().is_none());
    // The first reader is cancelled; the others continue to share its call.
    drop(first);
    for got in others.await {
        assert_eq!(got.unwrap().unwrap().decode().api_version(), "g/v2");
    }
    assert_eq!(calls(&conversion), [1]);
    // A list that fails does not fail those who need another of its objects.
    let mut list = v2.list(ListOptions::latest("")).boxed();
    assert!((&mut list).now_or_never().is_none());
    let got = v2.get("b", MinRevision::Any).await;
    assert!(got.is_ok());
    assert!(list.await.is_err());
}

#[tokio::test]
async fn a_cancelled_read_leaves_nothing_behind() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Stuck;
    struct OnDrop;
    impl Drop for OnDrop {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    impl Conversion for Stuck {
        fn convert(&self, _: Vec<Value>, _: &KindVersion) -> Converting {
            let guard = OnDrop;
            Converting::Pending(
                async move {
                    let _guard = guard;
                    std::future::pending().await
                }
                .boxed(),
            )
        }
    }
    let stored = stored();
    write(&stored.storage, "a", &thing("g/v1", "a", "x")).await;
    let template = versions(&Arc::default(), 0);
    let kind = Arc::new(KindVersions {
        versions: template.versions.clone(),
        stored: 0,
        conversion: Arc::new(Stuck),
    });
    let v2 = over(&stored, &kind, 1);
    assert!(v2.get("a", MinRevision::Any).now_or_never().is_none());
    assert_eq!(
        DROPPED.load(Ordering::Relaxed),
        1,
        "the call is given up with its reader"
    );
}
