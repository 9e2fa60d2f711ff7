//! HTTP/2 responses with frames that no library would send.

use super::{repeat, things};
use crate::attackers::Cases;
use crate::attackers::extenders::{register, until_available};
use crate::attackers::slow::closed_windows;
use crate::backend::{Backend, Tls};
use crate::frames::{self, frame};
use crate::scale::Scale;
use crate::scene::Scene;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Serves a connection on which `respond` writes the response of each stream.
fn serve_http2(io: &mut Tls, respond: &dyn Fn(u32, &mut Tls)) {
    serve_within_windows(io, &|stream, _, io| respond(stream, io));
}

/// The same. `respond` also gets the flow-control window of the stream.
fn serve_within_windows(io: &mut Tls, respond: &dyn Fn(u32, usize, &mut Tls)) {
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    let mut window = 65_535;
    let mut preface = [0; 24];
    if io.read_exact(&mut preface).is_err() || io.write_all(&frame(frames::SETTINGS, 0, 0, &[])).is_err() {
        return;
    }
    loop {
        let mut head = [0; 9];
        if io.read_exact(&mut head).is_err() {
            return;
        }
        let size = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; size];
        if io.read_exact(&mut payload).is_err() {
            return;
        }
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        match (head[3], head[4]) {
            (frames::SETTINGS, 0) => {
                for setting in payload.chunks_exact(6).filter(|s| s[..2] == INITIAL_WINDOW_SIZE) {
                    window = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]) as usize;
                }
                let _ = io.write_all(&frame(frames::SETTINGS, 1, 0, &[]));
            }
            (frames::PING, 0) => drop(io.write_all(&frame(frames::PING, 1, 0, &payload))),
            (frames::HEADERS, _) => respond(stream, window, io),
            (frames::GOAWAY, _) => return,
            _ => {}
        }
        let _ = io.flush();
    }
}

fn head(more: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    frames::field(":status", "200", false, &mut block);
    frames::field("content-type", "application/json", false, &mut block);
    for (name, value) in more {
        frames::field(name, value, false, &mut block);
    }
    block
}

fn proper(stream: u32) -> Vec<u8> {
    let body = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"a/v1","resources":[]}"#;
    let begin = frame(frames::HEADERS, frames::END_HEADERS, stream, &head(&[]));
    [begin, frame(frames::DATA, frames::END_STREAM, stream, body.as_bytes())].concat()
}

/// A response without an end, as long as the window of its stream allows.
fn fill(stream: u32, window: usize, io: &mut Tls) {
    let _ = io.write_all(&frame(frames::HEADERS, frames::END_HEADERS, stream, &head(&[])));
    let part = vec![b' '; 8 << 10];
    for _ in 0..window / part.len() {
        if io.write_all(&frame(frames::DATA, 0, stream, &part)).is_err() {
            return;
        }
    }
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    use frames::*;
    cases.add(
        "http2: windows that are filled for 200 clients that do not read",
        |scene| {
            let filling = Arc::new(AtomicBool::new(false));
            let fills = filling.clone();
            let backend = Backend::start_http2(Arc::new(move |_, io| {
                serve_within_windows(io, &|stream, window, io| match fills.load(Ordering::Relaxed) {
                    true => fill(stream, window, io),
                    false => drop(io.write_all(&proper(stream))),
                });
            }));
            let group = register(scene, backend.port);
            until_available(scene, &group);
            // Not before: the checks of its availability expect an end.
            filling.store(true, Ordering::Relaxed);
            let path = format!("/apis/{group}/v1/namespaces/evil/things/a");
            let block = frames::block("GET", &path, scene.token(), &[]);
            closed_windows(scene, 2, &block);
        },
    );
    let n = scale.size(20_000);
    let mut peer = |name: &str, respond: Box<dyn Fn(u32, &mut Tls) + Send + Sync>| {
        cases.add(format!("http2: {name}"), move |scene: &mut Scene<'_>| {
            let backend = Backend::start_http2(Arc::new(move |_, io| serve_http2(io, &*respond)));
            let group = register(scene, backend.port);
            for _ in 0..2 {
                scene.send_all(&vec![things(&group); 8]);
                scene.hold();
            }
        });
    };
    peer(
        "GOAWAY after each answer",
        Box::new(|stream, io| {
            let _ = io.write_all(&proper(stream));
            let _ = io.write_all(&frame(
                GOAWAY,
                0,
                0,
                &[stream.to_be_bytes(), 0u32.to_be_bytes()].concat(),
            ));
        }),
    );
    peer(
        "GOAWAY instead of answers",
        Box::new(|_, io| {
            let _ = io.write_all(&frame(
                GOAWAY,
                0,
                0,
                &[0u32.to_be_bytes(), 11u32.to_be_bytes()].concat(),
            ));
        }),
    );
    peer(
        "every stream refused",
        Box::new(|stream, io| {
            let _ = io.write_all(&frame(RST_STREAM, 0, stream, &7u32.to_be_bytes()));
        }),
    );
    peer(
        "20,000 pings before each answer",
        Box::new(move |stream, io| {
            repeat(io, n, &frame(PING, 0, 0, &[0; 8]));
            let _ = io.write_all(&proper(stream));
        }),
    );
    peer(
        "20,000 settings before each answer",
        Box::new(move |stream, io| {
            repeat(io, n, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]));
            let _ = io.write_all(&proper(stream));
        }),
    );
    peer(
        "a window that is closed at once",
        Box::new(|stream, io| {
            let _ = io.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
            let _ = io.write_all(&proper(stream));
        }),
    );
    peer(
        "a limit of no streams",
        Box::new(|stream, io| {
            let _ = io.write_all(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]));
            let _ = io.write_all(&proper(stream));
        }),
    );
    peer(
        "headers that go on in 20,000 frames",
        Box::new(move |stream, io| {
            let _ = io.write_all(&frame(HEADERS, 0, stream, &head(&[])));
            let mut field = Vec::new();
            frames::field("x", &"v".repeat(100), false, &mut field);
            repeat(io, n, &frame(CONTINUATION, 0, stream, &field));
        }),
    );
    peer(
        "interim answers without end",
        Box::new(move |stream, io| {
            let mut block = Vec::new();
            frames::field(":status", "103", false, &mut block);
            repeat(io, n, &frame(HEADERS, END_HEADERS, stream, &block));
            let _ = io.write_all(&proper(stream));
        }),
    );
    peer(
        "pushed streams",
        Box::new(move |stream, io| {
            let promise = [&2u32.to_be_bytes()[..], &frames::block("GET", "/", "", &[])].concat();
            let _ = io.write_all(&frame(PUSH_PROMISE, END_HEADERS, stream, &promise));
        }),
    );
    peer(
        "data before the head",
        Box::new(|stream, io| {
            let _ = io.write_all(&frame(DATA, 0, stream, b"{}"));
            let _ = io.write_all(&proper(stream));
        }),
    );
    peer(
        "100,000 empty frames of data",
        Box::new(move |stream, io| {
            let _ = io.write_all(&frame(HEADERS, END_HEADERS, stream, &head(&[])));
            repeat(io, n, &frame(DATA, 0, stream, b""));
            let _ = io.write_all(&frame(DATA, END_STREAM, stream, b"{}"));
        }),
    );
    peer(
        "a wrong length",
        Box::new(|stream, io| {
            let begin = frame(HEADERS, END_HEADERS, stream, &head(&[("content-length", "1000000")]));
            let _ = io.write_all(&begin);
            let _ = io.write_all(&frame(DATA, END_STREAM, stream, b"{}"));
        }),
    );
    peer(
        "headers of 1,000 names of its own",
        Box::new(|stream, io| {
            let names: Vec<_> = (0..1_000).map(|i| format!("x-{i}")).collect();
            let more: Vec<_> = names.iter().map(|n| (n.as_str(), "v")).collect();
            let _ = io.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &head(&more)));
        }),
    );
}
