//! Responses that stop in the middle or never begin.

use super::{OK, things};
use crate::attackers::Cases;
use crate::attackers::extenders::{register, register_until_available};
use crate::backend::{Backend, Tls, with_discovery};
use crate::scale::Scale;
use crate::wire::{self, Request};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Instant;

/// Reads until the peer closes the connection.
fn hang(io: &mut Tls) {
    let mut rest = [0; 1024];
    while io.read(&mut rest).is_ok_and(|n| n > 0) {}
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(100, 4);
    let mut stall = |name: &str, otherwise: fn(&mut Tls)| {
        cases.add(format!("stall: {name}"), move |scene| {
            let (_backend, group) =
                register_until_available(scene, |group| with_discovery(group, move |_, io| otherwise(io)));
            let mut open = Vec::new();
            for _ in 0..n {
                let Some(mut io) = scene.connect() else { break };
                let _ = wire::send(&mut io, &things(&group), scene.token());
                open.push((io, Instant::now()));
            }
            scene.hold();
            for (mut io, sent) in open {
                scene.answered(&mut io, sent);
            }
        });
    };
    stall("a hundred requests, never an answer", hang);
    stall("a hundred heads and no body", |io| {
        let _ = io.write_all(format!("{OK}Content-Length: 0\r\n\r\n").as_bytes());
        hang(io);
    });
    stall("an interim answer and nothing else", |io| {
        let _ = io.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n");
        hang(io);
    });
    stall("one byte of the head", |io| {
        let _ = io.write_all(b"H");
        hang(io);
    });
    cases.add("stall: accepts connections and says nothing", move |scene| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let group = register(scene, port);
        scene.send_all(&vec![things(&group); 8]);
        scene.hold();
    });
    cases.add("stall: discovery that drips", move |scene| {
        let backend = Backend::start(Arc::new(|_, io| {
            let _ = io.write_all(format!("{OK}Content-Length: 1000\r\n\r\n{{").as_bytes());
            hang(io);
        }));
        let groups: Vec<_> = (0..10).map(|_| register(scene, backend.port)).collect();
        for group in &groups {
            scene.send(&things(group));
        }
        for path in ["/apis", "/openapi/v2", "/openapi/v3"] {
            scene.send(&Request::get(path));
        }
        scene.hold();
    });
}
