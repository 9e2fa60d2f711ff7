//! Requests next to one that never ends.

use super::{H1, H2, head, streaming};
use crate::aggregator::testing::*;
use crate::request::UnprotectedHandler;
use bytes::Bytes;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Only a failing test waits this long.
const FAILED: Duration = Duration::from_secs(60);

#[tokio::test]
async fn requests_do_not_wait_for_an_upload_whose_response_has_ended() {
    for length in ["0", "2"] {
        let pki = Pki::new(&["ext.ns.svc"], H1);
        let backend = raw_backend(&pki, move |mut s| async move {
            let first = head(&mut s).await.unwrap();
            let body = &"ok"[..length.parse().unwrap()];
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            s.write_all(response.as_bytes()).await.unwrap();
            // Reads the upload to its end, which never comes.
            let mut rest = Vec::new();
            if first.starts_with("POST") {
                s.read_to_end(&mut rest).await.unwrap_or_default();
            }
        })
        .await;
        let p = proxy(&backend.authority, &pki.ca_pem);
        let (chunks, body) = mpsc::channel(1);
        chunks.send("some").await.unwrap();
        let upload = http::Request::post("/x").body(streaming(body)).unwrap();
        let answered = p.clone().serve(upload, alice()).await;
        assert_eq!(text(answered).await.len().to_string(), length);
        let beside = tokio::time::timeout(FAILED, p.clone().serve(get("/x"), alice())).await;
        assert_eq!(beside.expect("nobody waits for an upload").status(), 200);
        assert_eq!(backend.connections.load(Ordering::Relaxed), 2);
        drop(chunks);
    }
}

#[tokio::test]
async fn unread_responses_do_not_block_others_on_their_connection() {
    const ANSWERS: usize = 20;
    const SIZE: usize = 256 << 10;
    let pki = Pki::new(&["ext.ns.svc"], H2);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let backend = raw_backend(&pki, move |stream| {
        let sender = sender.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let head = http::Response::new(());
                if request.uri().path() != "/large" {
                    let mut sending = respond.send_response(head, false).unwrap();
                    sending.send_data(Bytes::from_static(b"ok"), true).unwrap();
                    continue;
                }
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut sending = respond.send_response(head, false).unwrap();
                    let mut left = SIZE;
                    while left > 0 {
                        sending.reserve_capacity(left);
                        let granted = poll_fn(|cx| sending.poll_capacity(cx)).await;
                        let piece = granted.unwrap().unwrap().min(left);
                        left -= piece;
                        sending.send_data(vec![b'x'; piece].into(), false).unwrap();
                    }
                    sender.send(()).unwrap();
                    // It never ends, like a watch.
                    std::future::pending::<()>().await;
                });
            }
        }
    })
    .await;
    let p = proxy(&backend.authority, &pki.ca_pem);
    let mut unread = Vec::new();
    for _ in 0..ANSWERS {
        unread.push(p.clone().serve(get("/large"), alice()).await);
    }
    for _ in 0..ANSWERS {
        let sent = tokio::time::timeout(FAILED, receiver.recv()).await;
        sent.expect("each may send as much as its own window takes").unwrap();
    }
    assert_eq!(text(p.clone().serve(get("/x"), alice()).await).await, "ok");
    assert_eq!(backend.connections.load(Ordering::Relaxed), 1);
    drop(unread);
}
