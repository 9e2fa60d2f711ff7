//! Connections: too many, half open or silent ones, and frames that no library would send.

use super::Cases;
use crate::frames;
use crate::scale::Scale;
use crate::scene::Scene;
use std::io::Write;
use std::time::Instant;

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    sockets(cases, scale);
    handshakes(cases, scale);
    http2(cases, scale);
}

fn sockets(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(1_000, 8);
    cases.add("sockets: 1,000 that say nothing", move |scene| {
        let open: Vec<_> = (0..n).map_while(|_| scene.tcp()).collect();
        scene.hold();
        drop(open);
    });
    cases.add("sockets: 500 idle TLS connections", move |scene| {
        let open: Vec<_> = (0..n / 2).map_while(|_| scene.connect()).collect();
        scene.hold();
        drop(open);
    });
    cases.add("sockets: 300 heads that come byte by byte", move |scene| {
        let mut open: Vec<_> = (0..n * 3 / 10).map_while(|_| scene.connect()).collect();
        for byte in b"GET /version HTTP/1.1\r\nX: " {
            for io in &mut open {
                let _ = io.write_all(&[*byte]);
            }
        }
        scene.hold();
    });
    cases.add("sockets: 2,000 opened and reset", move |scene| {
        for _ in 0..n * 2 {
            let Some(tcp) = scene.tcp() else { break };
            let _ = socket2::SockRef::from(&tcp).set_linger(Some(std::time::Duration::ZERO));
        }
        scene.hold();
    });
    cases.add("sockets: 500 handshakes, one after the other", move |scene| {
        for _ in 0..n / 2 {
            drop(scene.connect());
        }
        scene.hold();
    });
}

fn handshakes(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(300, 4);
    let mut raw = |name: &str, bytes: Vec<u8>| {
        cases.add(format!("handshake: {name}, 300 times"), move |scene| {
            let mut open = Vec::new();
            for _ in 0..n {
                let Some(mut tcp) = scene.tcp() else { break };
                let _ = tcp.write_all(&bytes);
                open.push(tcp);
            }
            scene.hold();
        });
    };
    raw("half of a ClientHello", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    raw("garbage", vec![0xff; 2_000]);
    raw("a record of no bytes over and over", [0x16, 3, 1, 0, 0].repeat(2_000));
    raw(
        "a record larger than any",
        [vec![0x16, 3, 3, 0xff, 0xff], vec![1; 60_000]].concat(),
    );
    raw(
        "a message of 16 MB in small records",
        [0x16, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff].repeat(500),
    );
    raw("alerts", [0x15, 3, 3, 0, 2, 1, 90].repeat(2_000));
    raw("plain HTTP", b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n".to_vec());
    raw("SSL 2", vec![0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10]);
    cases.add(
        "handshake: application data of no bytes, 20,000 records",
        move |scene| {
            let Some(io) = scene.connect() else { return };
            let mut tcp = io.sock;
            let _ = tcp.write_all(&[0x17, 3, 3, 0, 0].repeat(20_000));
            scene.hold();
        },
    );
}

/// A case that sends frames over HTTP/2 and keeps the connection open.
fn send(scene: &mut Scene<'_>, make: impl FnOnce(&mut frames::Connection)) {
    let Some(mut connection) = scene.http2() else { return };
    make(&mut connection);
    scene.hold();
}

fn http2(cases: &mut Cases, scale: &Scale) {
    use frames::*;
    let n = scale.size(20_000);
    // Rapid reset (CVE-2023-44487).
    cases.add("http2: 20,000 streams begun and reset", move |scene| {
        let block = frames::block("GET", "/version", "", &[]);
        send(scene, |c| {
            for i in 0..n as u32 {
                let stream = 2 * i + 1;
                let begun = frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
                if !c.send(&[begun, frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat()) {
                    break;
                }
            }
        });
    });
    // MadeYouReset (CVE-2025-8671): a zero window increment is a stream error, so the server sends the reset.
    cases.add("http2: 20,000 streams that make the server reset", move |scene| {
        let block = frames::block("GET", "/version", "", &[]);
        send(scene, |c| {
            for i in 0..n as u32 {
                let stream = 2 * i + 1;
                let begun = frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
                if !c.send(&[begun, frame(WINDOW_UPDATE, 0, stream, &0u32.to_be_bytes())].concat()) {
                    break;
                }
            }
        });
    });
    let mut flood = |name: &str, one: Vec<u8>, times: usize| {
        cases.add(format!("http2: {name}"), move |scene| {
            send(scene, |c| {
                let part = one.repeat(100);
                for _ in 0..times / 100 {
                    if !c.send(&part) {
                        break;
                    }
                }
            });
        });
    };
    flood("100,000 pings", frame(PING, 0, 0, &[0; 8]), n * 5);
    flood("100,000 settings", frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]), n * 5);
    flood(
        "settings of 16 KB",
        frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0x10, 0].repeat(2_700)),
        n / 40,
    );
    flood(
        "100,000 window updates",
        frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()),
        n * 5,
    );
    flood("100,000 priorities", frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 16]), n * 5);
    flood(
        "100,000 priorities that depend on themselves",
        frame(PRIORITY, 0, 3, &[0, 0, 0, 3, 16]),
        n * 5,
    );
    flood("100,000 frames of no kind", frame(0xee, 0, 1, &[]), n * 5);
    flood("20,000 empty frames of data", frame(DATA, 0, 1, &[]), n);
    flood(
        "a push promise",
        frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        100,
    );
    flood("acknowledgements of nothing", frame(SETTINGS, 1, 0, &[]), n);
    // CONTINUATION flood (VU#421644): the header block never ends.
    cases.add("http2: 20,000 CONTINUATION frames", move |scene| {
        send(scene, |c| {
            let mut block = Vec::new();
            frames::field("x", "y", false, &mut block);
            c.send(&frame(HEADERS, END_STREAM, 1, &block));
            let part = frame(CONTINUATION, 0, 1, &block).repeat(100);
            for _ in 0..n / 100 {
                if !c.send(&part) {
                    break;
                }
            }
        });
    });
    cases.add("http2: empty CONTINUATION frames", move |scene| {
        send(scene, |c| {
            c.send(&frame(HEADERS, END_STREAM, 1, &[]));
            let part = frame(CONTINUATION, 0, 1, &[]).repeat(100);
            for _ in 0..n / 100 {
                if !c.send(&part) {
                    break;
                }
            }
        });
    });
    cases.add(
        "http2: a header table filled anew by each of 2,000 streams",
        move |scene| {
            send(scene, |c| {
                for i in 0..n as u32 / 10 {
                    let mut block = frames::block("GET", "/version", "", &[]);
                    for j in 0..20 {
                        frames::field(&format!("x-{i}-{j}"), &"v".repeat(100), true, &mut block);
                    }
                    if !c.send(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * i + 1, &block)) {
                        break;
                    }
                }
            });
        },
    );
    cases.add(
        "http2: one entry of the table named 16,000 times a request",
        move |scene| {
            send(scene, |c| {
                let mut first = frames::block("GET", "/version", "", &[]);
                frames::field("x", &"v".repeat(3_900), true, &mut first);
                c.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &first));
                for i in 1..n as u32 / 400 {
                    let mut block = frames::block("GET", "/version", "", &[]);
                    // 0xbe refers to the newest entry of the dynamic table, so one byte expands to 3,900.
                    block.extend(std::iter::repeat_n(0xbe, 15_000));
                    if !c.send(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * i + 1, &block)) {
                        break;
                    }
                }
            });
        },
    );
    cases.add("http2: the table resized 100,000 times", move |scene| {
        send(scene, |c| {
            let block = [
                // Alternating dynamic table size updates: to 0, and back to 4,096.
                [0x20, 0x3f, 0xe1, 0x1f].repeat(3_000),
                frames::block("GET", "/version", "", &[]),
            ]
            .concat();
            for i in 0..n as u32 / 100 {
                if !c.send(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * i + 1, &block)) {
                    break;
                }
            }
        });
    });
    cases.add("http2: a hundred streams with a closed window each", move |scene| {
        send(scene, |c| {
            // SETTINGS_INITIAL_WINDOW_SIZE = 0.
            c.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
            let block = frames::block("GET", "/openapi/v2", "t-account", &[]);
            for i in 0..100u32 {
                c.send(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * i + 1, &block));
            }
        });
    });
    cases.add(
        "http2: a hundred streams with a body that does not come, ten connections",
        move |scene| {
            let block = frames::block(
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "t-account",
                &[("content-type", "application/json")],
            );
            let mut open = Vec::new();
            for _ in 0..10 {
                let Some(mut c) = scene.http2() else { break };
                for i in 0..100u32 {
                    c.send(&frame(HEADERS, END_HEADERS, 2 * i + 1, &block));
                    c.send(&frame(DATA, 0, 2 * i + 1, b"{"));
                }
                open.push(c);
            }
            scene.hold();
        },
    );
    cases.add("http2: a window that overflows", move |scene| {
        send(scene, |c| {
            c.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()));
            c.send(&frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()));
        });
    });
    cases.add(
        "http2: an initial window of one byte for a large answer",
        move |scene| {
            let Some(mut c) = scene.http2() else { return };
            c.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]));
            let block = frames::block("GET", "/openapi/v2", "t-account", &[]);
            c.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
            for _ in 0..n / 10 {
                if !c.send(&frame(WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes())) {
                    break;
                }
            }
            scene.hold();
        },
    );
    cases.add("http2: requests whose head is refused, all answered", move |scene| {
        for more in [
            vec![("connection", "close")],
            vec![("transfer-encoding", "chunked")],
            vec![("te", "gzip")],
            vec![("X-Upper", "a")],
            vec![("content-length", "5")],
            vec![(":method", "POST")],
            vec![("host", "other")],
        ] {
            let Some(mut c) = scene.http2() else { return };
            let block = frames::block("GET", "/version", "", &more);
            c.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &block));
            let until = Instant::now() + scene.scale.answer;
            let ended = c.until_end_of(1, until);
            scene.expect(ended, || format!("{more:?} is answered"));
        }
    });
}
