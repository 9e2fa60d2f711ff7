//! Malformed and abusive responses to proxied requests.

use super::{OK, gzip_of_spaces, repeat, things};
use crate::attackers::Cases;
use crate::attackers::extenders::register_until_available;
use crate::backend::{Tls, json, with_discovery};
use crate::scale::Scale;
use std::io::Write;

/// A case in which requests for objects get this response.
fn answer(cases: &mut Cases, name: &str, otherwise: impl Fn(&mut Tls) + Send + Sync + Clone + 'static) {
    cases.add(format!("answer: {name}"), move |scene| {
        let (_backend, group) = register_until_available(scene, |group| {
            let otherwise = otherwise.clone();
            with_discovery(group, move |_, io| otherwise(io))
        });
        scene.send(&things(&group));
        scene.send_all(&vec![things(&group); 4]);
    });
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    let n = scale.size(1 << 20);
    let mut text = |name: &str, bytes: Vec<u8>| answer(cases, name, move |io| drop(io.write_all(&bytes)));
    text("no HTTP", b"\x00\x01\x02 garbage\r\n\r\n".to_vec());
    text("a status of six digits", b"HTTP/1.1 200000 OK\r\n\r\n".to_vec());
    text(
        "a status of 999",
        b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n".to_vec(),
    );
    text(
        "a switch of protocols nobody asked for",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nabc".to_vec(),
    );
    text(
        "a redirect",
        b"HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n".to_vec(),
    );
    text(
        "two lengths",
        format!("{OK}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab").into_bytes(),
    );
    text(
        "a length and chunks",
        format!("{OK}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").into_bytes(),
    );
    text(
        "less than its length",
        format!("{OK}Content-Length: 100000\r\n\r\n{{").into_bytes(),
    );
    text(
        "more than its length",
        format!("{OK}Content-Length: 2\r\n\r\n{{}}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen").into_bytes(),
    );
    text(
        "a chunk of a size beyond 64 bits",
        format!("{OK}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\na").into_bytes(),
    );
    text(
        "a header of a megabyte",
        format!("{OK}X: {}\r\nContent-Length: 0\r\n\r\n", "v".repeat(n)).into_bytes(),
    );
    text(
        "50,000 headers",
        format!("{OK}{}Content-Length: 0\r\n\r\n", "X: v\r\n".repeat(n / 20)).into_bytes(),
    );
    text(
        "trailers of 500 KB",
        format!(
            "{OK}Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}\r\n",
            "X: v\r\n".repeat(n / 12)
        )
        .into_bytes(),
    );
    text(
        "chunks with extensions of 500 KB",
        format!(
            "{OK}Transfer-Encoding: chunked\r\n\r\n1;{}\r\na\r\n0\r\n\r\n",
            "x".repeat(n / 2)
        )
        .into_bytes(),
    );
    text("cookies and other rights on the gateway's origin", format!(
        "{OK}Set-Cookie: a=b\r\nStrict-Transport-Security: max-age=1\r\nWWW-Authenticate: Basic\r\nContent-Length: 2\r\n\r\n{{}}"
    ).into_bytes());
    text(
        "gzip that is none",
        format!("{OK}Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd").into_bytes(),
    );
    answer(cases, "10,000 interim answers", move |io| {
        repeat(io, n / 100, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        let _ = io.write_all(&json("{}"));
    });
    answer(cases, "headers that do not end", move |io| {
        let _ = io.write_all(OK.as_bytes());
        repeat(io, n * 4, b"X-Endless: value\r\n");
    });
    answer(cases, "100 MB in one go", move |io| {
        let _ = io.write_all(format!("{OK}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
        repeat(
            io,
            n / 10_000,
            &[b"4000\r\n".to_vec(), vec![b'x'; 0x4000], b"\r\n".to_vec()].concat(),
        );
        let _ = io.write_all(b"0\r\n\r\n");
    });
    answer(cases, "500,000 chunks of one byte", move |io| {
        let _ = io.write_all(format!("{OK}Transfer-Encoding: chunked\r\n\r\n").as_bytes());
        repeat(io, n / 4, b"1\r\nx\r\n");
        let _ = io.write_all(b"0\r\n\r\n");
    });
    let size = scale.reduced(256, 64) << 20;
    answer(cases, "a gzip bomb of 256 MB", move |io| {
        let bomb = gzip_of_spaces(size);
        let head = format!("{OK}Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", bomb.len());
        let _ = io.write_all(head.as_bytes()).and_then(|()| io.write_all(&bomb));
    });
}
