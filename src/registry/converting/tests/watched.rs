//! Watches in a version that is not the stored one.

use super::*;

#[tokio::test]
async fn watches_deliver_in_order_until_an_object_cannot_be_converted() {
    for conversion in conversions() {
        let stored = stored();
        let kind = versions(&conversion, 0);
        let v2 = over(&stored, &kind, 1);
        let mut watch = v2.watch(from_the_beginning()).await.unwrap();
        for (version, name) in [
            ("g/v1", "a"),
            ("g/v2", "b"),
            ("g/v1", "c"),
            ("g/v1", "bad"),
            ("g/v2", "d"),
        ] {
            write(&stored.storage, name, &thing(version, name, "x")).await;
        }
        for name in ["a", "b", "c"] {
            let Some(WatchItem::Change(t, event)) = watch.next().await else {
                panic!("{name} is delivered")
            };
            let object = event.object(t).decode();
            assert_eq!((object.name(), object.api_version()), (name, "g/v2"));
        }
        let Some(WatchItem::Failed(why)) = watch.next().await else {
            panic!("the failure is delivered")
        };
        assert_eq!(why.to_string(), "cannot convert bad");
        assert!(
            watch.next().await.is_none() && watch.try_next().is_none(),
            "nothing follows"
        );
    }
}

#[tokio::test]
async fn watchers_share_converted_events() {
    let stored = stored();
    let conversion = Arc::new(Renaming::default());
    let kind = versions(&conversion, 0);
    let v2 = over(&stored, &kind, 1);
    let mut watches = Vec::new();
    for _ in 0..2 {
        watches.push(v2.watch(from_the_beginning()).await.unwrap());
    }
    write(&stored.storage, "a", &thing("g/v1", "a", "x")).await;
    let mut events: Vec<Arc<Event>> = Vec::new();
    for watch in &mut watches {
        let Some(WatchItem::Change(_, event)) = watch.next().await else {
            panic!("both receive the event")
        };
        events.push(event);
    }
    assert!(Arc::ptr_eq(&events[0], &events[1]));
    assert_eq!(calls(&conversion), [1]);
}
