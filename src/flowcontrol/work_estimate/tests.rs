use super::*;
use http::Method;

struct Stored(Option<StoredObjects>);

impl ObjectCounts for Stored {
    fn stored(&self, group: &str, resource: &str) -> Option<StoredObjects> {
        assert_eq!((group, resource), ("foo.bar", "events"));
        self.0
    }
}

fn seats_of(query: &str, count: u64, average_bytes: u64, max_seats: u32, from_cache: bool) -> u32 {
    let uri = format!("/apis/foo.bar/v1/events?{query}");
    let info = RequestInfo::resolve(&Method::GET, &uri.parse().unwrap()).unwrap();
    let stored = Stored(Some(StoredObjects { count, average_bytes }));
    let around = Surroundings {
        objects: &stored,
        watches: 0,
        max_seats: Some(max_seats),
        consistent_reads_from_cache: from_cache,
    };
    let work = estimate(&info, query, &around);
    assert_eq!((work.final_seats, work.additional_latency), (0, Duration::ZERO));
    work.initial_seats
}

/// The cases of upstream's `width_test.go`, which runs without consistent reads from the cache.
#[test]
fn list_estimates_equal_upstreams() {
    let exact = "resourceVersion=1&resourceVersionMatch=Exact";
    for (query, count, size, max, seats) in [
        ("limit=invalid", 799, 10_000, 100, 100),
        ("limit=399&resourceVersion=1", 699, 10_000, 100, 40),
        ("resourceVersion=1", 699, 10_000, 100, 10),
        ("resourceVersion=1", 69, 10_000, 100, 7),
        ("limit=399", 699, 10_000, 100, 40),
        ("", 399, 10_000, 100, 40),
        ("continue=token&limit=399", 699, 10_000, 100, 40),
        ("limit=299&resourceVersion=0", 399, 10_000, 100, 10),
        ("limit=20&resourceVersion=0", 399, 10_000, 100, 2),
        ("resourceVersion=0", 799, 10_000, 100, 10),
        ("resourceVersion=0", 79, 10_000, 100, 8),
        (&format!("{exact}&limit=399"), 699, 10_000, 100, 40),
        (
            "resourceVersion=1&resourceVersionMatch=NotOlderThan",
            799,
            10_000,
            100,
            10,
        ),
        (
            "resourceVersion=1&resourceVersionMatch=NotOlderThan",
            79,
            10_000,
            100,
            8,
        ),
        (exact, 5_000, 10_000, 20, 20),
        ("resourceVersionMatch=foo", 200, 10_000, 100, 20),
        (
            "resourceVersion=foo&resourceVersionMatch=Exact&limit=399",
            699,
            10_000,
            100,
            40,
        ),
        ("", 1, 0, 100, 15),
        ("limit=1", 1, 0, 100, 15),
        ("limit=499&resourceVersion=0", 1, 0, 100, 10),
        ("fieldSelector=metadata.name%3Dtest", 799, 200_000, 100, 2),
        ("fieldSelector=metadata.name%3Dtest", 799, 1_500_000, 100, 15),
        (
            "fieldSelector=metadata.name%3Dtest&limit=500&resourceVersion=0",
            799,
            200_000,
            100,
            2,
        ),
        (
            "fieldSelector=metadata.name%3Dtest&limit=500&resourceVersion=0",
            799,
            1_500_000,
            100,
            10,
        ),
        ("labelSelector=app%3Dtest", 799, 10_000, 100, 80),
        ("labelSelector=app%3Dtest&limit=49", 799, 10_000, 100, 40),
        ("labelSelector=app%3Dtest&limit=699", 799, 10_000, 100, 70),
        ("resourceVersion=0&labelSelector=app%3Dtest", 799, 10_000, 100, 10),
        ("", 0, 0, 100, 1),
    ] {
        assert_eq!(
            seats_of(query, count, size, max, false),
            seats,
            "{query:?} of {count} × {size}"
        );
    }
}

#[test]
fn consistent_lists_from_the_cache_are_streamed() {
    assert_eq!(seats_of("", 399, 10_000, 100, true), 10);
    assert_eq!(seats_of("limit=50", 399, 10_000, 100, true), 5);
    assert_eq!(seats_of("continue=token", 399, 10_000, 100, true), 40);
}

#[test]
fn a_watch_costs_a_list_if_it_starts_with_the_state() {
    for (query, seats) in [
        ("watch=1", 10),
        ("watch=1&resourceVersion=0", 10),
        ("watch=1&resourceVersion=7", 1),
        ("watch=1&resourceVersion=7&sendInitialEvents=true", 10),
        ("watch=1&resourceVersion=7&sendInitialEvents=false", 1),
    ] {
        assert_eq!(seats_of(query, 799, 10_000, 100, true), seats, "{query}");
    }
}

#[test]
fn unknown_resources_and_other_verbs_take_one_seat() {
    let around = Surroundings {
        objects: &Stored(None),
        watches: 10_000,
        max_seats: Some(100),
        consistent_reads_from_cache: false,
    };
    for (method, uri) in [
        (Method::GET, "/apis/foo.bar/v1/events"),
        (Method::GET, "/apis/foo.bar/v1/events/e"),
        (Method::DELETE, "/apis/foo.bar/v1/events"),
        (Method::GET, "/version"),
        (Method::POST, "/api/v1/namespaces/a/serviceaccounts/b/token"),
    ] {
        let info = RequestInfo::resolve(&method, &uri.parse().unwrap()).unwrap();
        assert_eq!(estimate(&info, "", &around), WorkEstimate::ONE_SEAT, "{method} {uri}");
    }
}

#[test]
fn writes_keep_seats_for_the_watches_of_their_event() {
    let info = RequestInfo::resolve(&Method::POST, &"/apis/foo.bar/v1/events".parse().unwrap()).unwrap();
    let of = |watches, max_seats| {
        let around = Surroundings {
            objects: &Stored(None),
            watches,
            max_seats,
            consistent_reads_from_cache: true,
        };
        let work = estimate(&info, "", &around);
        assert_eq!(work.initial_seats, 1);
        (work.final_seats, work.additional_latency)
    };
    let ms = Duration::from_millis;
    assert_eq!(of(9, Some(10)), (0, ms(0)));
    assert_eq!(of(10, Some(10)), (1, ms(5)));
    assert_eq!(of(25, Some(10)), (3, ms(5)));
    assert_eq!(of(100, None), (10, ms(5)));
    // Wider events take longer on as many seats as a request may have: the work stays the same.
    assert_eq!(of(1_000, Some(100)), (10, ms(50)));
    assert_eq!(of(100, Some(5)), (5, ms(10)));
}
