//! Reads: lists, selectors, watches and query parameters.

use super::{CONFIG_MAPS, config_map, joined};
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::{self, Request};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Stores `n` objects of about `size` bytes over one connection.
fn fill(scene: &mut Scene<'_>, n: usize, size: usize) {
    let data = format!(r#""data":{{"k":"{}"}}"#, "d".repeat(size));
    let labels = r#""labels":{"a":"b","c":"d"}"#;
    let requests: Vec<_> = (0..n)
        .map(|i| Request::post(CONFIG_MAPS, config_map(&format!("o{i}"), labels, &data)))
        .collect();
    scene.send_in_sequence(&requests);
    scene.slowest = std::time::Duration::ZERO;
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    large_lists(cases, scale);
    selectors(cases, scale);
    queries(cases, scale);
    watches(cases, scale);
}

fn large_lists(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(10_000, 20);
    cases.add("list: 10,000 objects in every form", move |scene| {
        fill(scene, n, 500);
        for accept in [
            "application/json",
            "application/json;pretty=1",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            TABLE,
            PARTIAL,
        ] {
            for query in ["", "?pretty=true", "?includeObject=Object"] {
                scene.send(&Request::get(format!("{CONFIG_MAPS}{query}")).header("Accept", accept));
            }
        }
        let gzip = Request::get(CONFIG_MAPS).header("Accept-Encoding", "gzip");
        scene.send(&gzip);
        scene.send_all(&vec![gzip; 8]);
        let table = Request::get(format!("{CONFIG_MAPS}?includeObject=Object")).header("Accept", TABLE);
        scene.send_all(&vec![table; 8]);
        let pages: Vec<_> = (0..n / 20)
            .map(|_| Request::get(format!("{CONFIG_MAPS}?limit=1")))
            .collect();
        scene.send_in_sequence(&pages);
        scene.send_all(&vec![
            Request::get(format!("{CONFIG_MAPS}?labelSelector=none%3Dsuch"));
            16
        ]);
    });
    let large = scale.reduced(20, 2);
    cases.add("list: twenty objects of 1 MB in every form", move |scene| {
        fill(scene, large, 900_000);
        for accept in [
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            TABLE,
        ] {
            let request = Request::get(format!("{CONFIG_MAPS}?includeObject=Object")).header("Accept", accept);
            scene.send_all(&vec![request; 4]);
        }
    });
}

fn selectors(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(10_000);
    let mut list = |name: &str, query: Box<dyn Fn() -> String + Send>| {
        cases.request(format!("selector: {name}"), move || {
            Request::get(format!("{CONFIG_MAPS}?{}", query()))
        });
    };
    list(
        "10,000 terms",
        Box::new(move || format!("labelSelector={}", joined(n, |i| format!("a{i}%3Db")))),
    );
    list(
        "10,000 terms of one key",
        Box::new(move || format!("labelSelector={}", joined(n, |i| format!("a!%3Db{i}")))),
    );
    list(
        "a set of 100,000 values",
        Box::new(move || format!("labelSelector=a+in+({})", joined(n * 8, |i| format!("v{i}")))),
    );
    list(
        "100,000 open parentheses",
        Box::new(move || format!("labelSelector=a+in+{}", "(".repeat(n * 10))),
    );
    list(
        "100,000 commas",
        Box::new(move || format!("labelSelector={}", ",".repeat(n * 10))),
    );
    list(
        "fields: 20,000 terms",
        Box::new(move || format!("fieldSelector={}", joined(n * 2, |i| format!("metadata.name!%3Dn{i}")))),
    );
    list(
        "fields: 500 KB of escapes",
        Box::new(move || format!("fieldSelector=metadata.name%3D{}", "%5C%5C".repeat(n * 10))),
    );
    cases.request("selector: deletes a collection by 10,000 terms", move || {
        Request::delete(format!(
            "{CONFIG_MAPS}?labelSelector={}",
            joined(n, |i| format!("a{i}%3Db"))
        ))
    });
    cases.at_once("selector: sixteen lists by 10,000 terms", 16, move || {
        Request::get(format!(
            "{CONFIG_MAPS}?labelSelector={}",
            joined(n, |i| format!("a{i}!%3Db"))
        ))
    });
}

fn queries(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(100_000);

    cases.request("query: 100,000 parameters", move || get("a=b&".repeat(n)));
    cases.request("query: 60,000 different parameters", move || {
        let mut text = String::new();
        for i in 0..n * 6 / 10 {
            text += &format!("p{i}=v&");
        }
        get(text)
    });
    cases.request("query: limit given 60,000 times", move || {
        get("limit=1&".repeat(n * 6 / 10))
    });
    cases.request("query: 900 KB of percent-escapes", move || {
        get(format!("labelSelector={}", "%41".repeat(n * 3)))
    });
    cases.request("query: half of an escape", || get("labelSelector=%4".into()));
    cases.add("query: numbers at their limits", move |scene| {
        for query in [
            "limit=9223372036854775807",
            "limit=-9223372036854775808",
            "limit=99999999999999999999",
            "timeoutSeconds=9223372036854775807&watch=1&resourceVersion=1",
            "timeoutSeconds=-1",
            "resourceVersion=18446744073709551615",
            "resourceVersion=9223372036854775807&resourceVersionMatch=Exact",
            "resourceVersion=1&resourceVersionMatch=Exact&limit=1",
            "resourceVersion=-1",
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=500",
            "resourceVersionMatch=Whatever",
            "timeout=99999999999999h",
            "timeout=-1s",
            "continue=",
            "pretty=maybe",
        ] {
            if query.contains("watch")
                || query.contains("18446744073709551615")
                || query.contains("9223372036854775807&")
            {
                continue;
            }
            scene.send(&get(query.into()));
        }
    });
    cases.add("query: forged continue tokens", move |scene| {
        let tokens = [
            "e30".to_owned(),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vLi4vIn0".to_owned(),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTIyMzM3MjAzNjg1NDc3NTgwNywic3RhcnQiOiJhIn0".to_owned(),
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ".to_owned(),
            "A".repeat(n * 5),
            "%00".repeat(n),
        ];
        for token in tokens {
            scene.send(&get(format!("limit=1&continue={token}")));
        }
    });
    cases.add("query: a fieldManager of 900 KB", move |scene| {
        let path = format!("{CONFIG_MAPS}?fieldManager={}", "m".repeat(n * 9));
        scene.send(&Request::post(path, config_map("managed", "", "")));
    });
    cases.request("path: 100,000 segments", move || {
        Request::get(format!("/api/v1{}", "/a".repeat(n)))
    });
    cases.request("path: 300,000 percent-escapes", move || {
        Request::get(format!("{CONFIG_MAPS}/{}", "%61".repeat(n * 3)))
    });
    cases.request("path: 400,000 dots and slashes", move || {
        Request::get(format!("/api/v1/{}", "../".repeat(n * 3)))
    });
    cases.request("path: 900 KB of slashes", move || Request::get("/".repeat(n * 9)));
    cases.request("accept: 50,000 clauses", move || {
        Request::get(CONFIG_MAPS).header("Accept", joined(n / 2, |i| format!("application/x{i};q=0.5")))
    });
    cases.request("accept: 50,000 parameters of a clause", move || {
        Request::get(CONFIG_MAPS).header("Accept", format!("application/json{}", ";as=Table".repeat(n / 2)))
    });
    cases.request("accept-encoding: 50,000 clauses", move || {
        Request::get(CONFIG_MAPS).header("Accept-Encoding", joined(n / 2, |_| "gzip;q=0.1".into()))
    });
}

fn watches(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(1_000, 10);
    for (name, query) in [
        ("from now", "watch=1"),
        (
            "with initial events",
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        ),
        ("by 1,000 terms", ""),
    ] {
        cases.add(format!("watch: 1,000 connections {name}"), move |scene| {
            fill(scene, 20, 50_000);
            let query = if query.is_empty() {
                format!("watch=1&labelSelector={}", joined(1_000, |i| format!("a{i}!%3Db")))
            } else {
                query.to_owned()
            };
            let mut open = Vec::new();
            for _ in 0..n {
                let Some(mut io) = scene.connect() else { break };
                let _ = wire::send(&mut io, &Request::get(format!("{CONFIG_MAPS}?{query}")), scene.token());
                open.push(io);
            }
            let change = Request::patch("merge", format!("{CONFIG_MAPS}/o1"), r#"{"data":{"x":"y"}}"#);
            scene.send_in_sequence(&vec![change; 10]);
            scene.hold();
        });
    }
    cases.add("watch: begun and left 2,000 times", move |scene| {
        for _ in 0..n * 2 {
            let Some(mut io) = scene.connect() else { break };
            let _ = wire::send(&mut io, &Request::get(format!("{CONFIG_MAPS}?watch=1")), scene.token());
        }
        scene.hold();
    });
    cases.add("watch: at revisions that are not there", move |scene| {
        for revision in ["1", "99999999", "9223372036854775807", "-1", "abc"] {
            let query = format!("watch=1&timeoutSeconds=1&resourceVersion={revision}");
            scene.send(&Request::get(format!("{CONFIG_MAPS}?{query}")));
        }
    });
    cases.add("watch: as Tables with large objects", move |scene| {
        fill(scene, 10, 500_000);
        let query = "watch=1&timeoutSeconds=1&includeObject=Object&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let request = Request::get(format!("{CONFIG_MAPS}?{query}")).header("Accept", TABLE);
        scene.send_all(&vec![request; 16]);
    });
}

fn get(query: String) -> Request {
    Request::get(format!("{CONFIG_MAPS}?{query}"))
}
