//! Clients that read responses slowly or not at all.

use super::Cases;
use super::writers::{CONFIG_MAPS, config_map};
use crate::frames::{self, frame};
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::{self, Request};

const INITIAL: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

fn fill(scene: &mut Scene<'_>, n: usize, size: usize) {
    let data = format!(r#""data":{{"k":"{}"}}"#, "d".repeat(size));
    let requests: Vec<_> = (0..n)
        .map(|i| Request::post(CONFIG_MAPS, config_map(&format!("s{i}"), "", &data)))
        .collect();
    scene.send_in_sequence(&requests);
}

/// Sends a hundred requests on each of so many HTTP/2 connections, whose windows it never opens.
pub(super) fn closed_windows(scene: &mut Scene<'_>, connections: usize, block: &[u8]) {
    let mut open = Vec::new();
    for _ in 0..connections {
        let Some(mut c) = scene.http2() else { break };
        c.send(&frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
        for i in 0..100u32 {
            c.send(&frame(
                frames::HEADERS,
                frames::END_STREAM | frames::END_HEADERS,
                2 * i + 1,
                block,
            ));
        }
        open.push(c);
    }
    scene.hold();
    scene.hold();
}

/// Sends `n` requests whose responses are not read.
fn unread(scene: &mut Scene<'_>, n: usize, request: &Request) {
    let mut open = Vec::new();
    for _ in 0..n {
        let Some(mut io) = scene.connect() else { break };
        let _ = wire::send(&mut io, request, scene.token());
        open.push(io);
    }
    scene.hold();
    scene.hold();
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(200, 4);
    let objects = scale.reduced(20, 2);
    for (name, accept, query) in [
        ("lists of 10 MB", "application/json", ""),
        ("lists of 10 MB in YAML", "application/yaml", ""),
        (
            "lists of 10 MB as Tables",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "?includeObject=Object",
        ),
        ("lists of 10 MB in protobuf", "application/vnd.kubernetes.protobuf", ""),
        ("lists of 10 MB in CBOR", "application/cbor", ""),
    ] {
        cases.add(format!("unread: 200 {name}"), move |scene| {
            fill(scene, objects, 500_000);
            unread(
                scene,
                n,
                &Request::get(format!("{CONFIG_MAPS}{query}")).header("Accept", accept),
            );
        });
    }
    cases.add("unread: 200 lists of 10 MB as gzip", move |scene| {
        fill(scene, objects, 500_000);
        unread(scene, n, &Request::get(CONFIG_MAPS).header("Accept-Encoding", "gzip"));
    });
    for (name, accept) in [
        ("", "application/json"),
        (" as Tables", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        (" in protobuf", "application/vnd.kubernetes.protobuf;stream=watch"),
    ] {
        cases.add(
            format!("unread: 200 watches that begin with 10 MB{name}"),
            move |scene| {
                fill(scene, objects, 500_000);
                unread(
                    scene,
                    n,
                    &Request::get(format!("{CONFIG_MAPS}?{INITIAL}")).header("Accept", accept),
                );
            },
        );
    }
    cases.add(
        "unread: 200 watches while objects of 500 KB change a hundred times",
        move |scene| {
            fill(scene, 1, 500_000);
            let mut open = Vec::new();
            for _ in 0..n {
                let Some(mut io) = scene.connect() else { break };
                let _ = wire::send(&mut io, &Request::get(format!("{CONFIG_MAPS}?watch=1")), scene.token());
                open.push(io);
            }
            let changes: Vec<_> = (0..n / 2)
                .map(|i| {
                    Request::patch(
                        "merge",
                        format!("{CONFIG_MAPS}/s0"),
                        format!(r#"{{"data":{{"x":"{i}"}}}}"#),
                    )
                })
                .collect();
            scene.send_in_sequence(&changes);
            scene.hold();
        },
    );
    cases.add("unread: the OpenAPI document, 200 times", move |scene| {
        unread(scene, n, &Request::get("/openapi/v2"))
    });
    cases.add("unread: 6,000 watches on HTTP/2 with closed windows", move |scene| {
        fill(scene, objects, 500_000);
        let block = frames::block("GET", &format!("{CONFIG_MAPS}?{INITIAL}"), scene.token(), &[]);
        let connections = scene.scale.reduced(60, 6);
        closed_windows(scene, connections, &block);
    });
    cases.add("unread: 1,000 lists on HTTP/2 with closed windows", move |scene| {
        fill(scene, objects, 500_000);
        let block = frames::block("GET", CONFIG_MAPS, scene.token(), &[("accept", "application/yaml")]);
        let connections = scene.scale.reduced(10, 2);
        closed_windows(scene, connections, &block);
    });
    cases.add(
        "unread: 500 requests in one packet, none of the answers read",
        move |scene| {
            fill(scene, 2, 500_000);
            let mut bytes = Vec::new();
            for _ in 0..500 {
                bytes.extend(Request::get(CONFIG_MAPS).head(scene.token()));
            }
            let mut open = Vec::new();
            for _ in 0..10 {
                let Some(mut io) = scene.connect() else { break };
                let _ = std::io::Write::write_all(&mut io, &bytes);
                open.push(io);
            }
            scene.hold();
        },
    );
}
