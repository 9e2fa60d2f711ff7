//! A hostile or broken webhook for authentication, authorization or audit. Only the requests that need it may
//! be delayed.

use super::Cases;
use crate::backend::{Tls, json};
use crate::scale::Scale;
use crate::scene::Scene;
use crate::wire::Request;
use std::io::{Read, Write};
use std::sync::Arc;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

/// Sets the webhook's behaviour, then sends requests that make the gateway call it: unknown tokens, requests
/// that no role allows, and audited writes.
fn provoke(scene: &mut Scene<'_>, n: usize, behaviour: impl Fn(&mut Tls) + Send + Sync + 'static) {
    let Some(webhook) = &scene.stage.webhook else { return };
    webhook.becomes(Arc::new(move |_, io| behaviour(io)));
    let unknown = |i: usize| Request::get("/api").header("Authorization", format!("Bearer unknown-{i}"));
    let denied = |i: usize| Request::get(format!("/api/v1/namespaces/calm/secrets/s{i}"));
    let recorded = |_| Request::post("/api/v1/namespaces/evil/configmaps", "{}");
    let mut open = Vec::new();
    for i in 0..n {
        for (request, token) in [(unknown(i), ""), (denied(i), "t-audited"), (recorded(i), "t-audited")] {
            let Some(mut io) = scene.connect() else { continue };
            let _ = crate::wire::send(&mut io, &request, token);
            open.push(io);
        }
    }
    scene.hold();
    scene.hold();
}

fn hang(io: &mut Tls) {
    let mut rest = [0; 1024];
    while io.read(&mut rest).is_ok_and(|n| n > 0) {}
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.reduced(50, 5);
    let size = scale.size(1 << 20);
    cases.add("webhook: never answers", move |scene| provoke(scene, n, hang));
    cases.add("webhook: answers with 500", move |scene| {
        provoke(scene, n, |io| {
            drop(io.write_all(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"))
        });
    });
    cases.add("webhook: redirects", move |scene| {
        provoke(scene, n, |io| {
            drop(io.write_all(
                b"HTTP/1.1 307 Temporary Redirect\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n",
            ));
        });
    });
    cases.add("webhook: asks to come again in a year", move |scene| {
        provoke(scene, n, |io| {
            drop(io.write_all(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 31536000\r\nContent-Length: 0\r\n\r\n"));
        });
    });
    cases.add("webhook: answers with 60 MB", move |scene| {
        provoke(scene, n, move |io| {
            let _ = io.write_all(format!("{OK}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
            let chunk = [b"4000\r\n".to_vec(), vec![b' '; 0x4000], b"\r\n".to_vec()].concat();
            for _ in 0..size * 60 / 0x4000 {
                if io.write_all(&chunk).is_err() {
                    return;
                }
            }
        });
    });
    let mut body = |name: &str, text: String| {
        cases.add(format!("webhook: answers {name}"), move |scene| {
            let answer = json(&text);
            provoke(scene, n, move |io| drop(io.write_all(&answer)));
        });
    };
    body("brackets nested a million deep", "[".repeat(size));
    body("a user of a million groups", {
        let groups = super::writers::joined(size / 4, |i| format!(r#""g{i}""#));
        format!(
            r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{{"authenticated":true,"user":{{"username":"u","groups":[{groups}]}}}}}}"#
        )
    });
    body("extra of a megabyte", {
        let extra = super::writers::joined(size / 20, |i| format!(r#""k{i}":["v"]"#));
        format!(
            r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{{"authenticated":true,"user":{{"username":"u","extra":{{{extra}}}}}}}}}"#
        )
    });
    body("a reason of a megabyte", {
        let reason = "r".repeat(size);
        format!(
            r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{{"allowed":false,"denied":true,"reason":"{reason}"}}}}"#
        )
    });
    body("an error of a megabyte", {
        let error = "e".repeat(size);
        format!(r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{{"error":"{error}"}}}}"#)
    });
    body("line ends in a name", {
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"a\r\nX-Remote-User: root","groups":["b\r\nc"]}}}"#.to_owned()
    });
    cases.add("webhook: headers that do not end", move |scene| {
        provoke(scene, n, move |io| {
            let _ = io.write_all(OK.as_bytes());
            for _ in 0..size {
                if io.write_all(b"X-Endless: value\r\n").is_err() {
                    return;
                }
            }
        });
    });
}
