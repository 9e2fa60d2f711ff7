//! Informational (1xx) responses of HTTP/1.1 backends: forwarded to the client, and limited in number. A backend that
//! sends nothing else would otherwise keep its connection, and a part of a thread, busy for as long as it likes.

use super::headers::clean_response;
use crate::request::InformationalSender;
use http::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Notify;

/// Informational responses that may precede a response, over HTTP/1.1 and HTTP/2. Go limits them, too.
pub(crate) const MAX_INFORMATIONAL: u32 = 1024;

/// Counts the informational responses to one request.
pub(crate) struct InterimLimit(Arc<Notify>);

impl InterimLimit {
    /// Counts those to `request`, and forwards them to `client`.
    pub(crate) fn of<B>(request: &mut Request<B>, client: Option<InformationalSender>) -> Self {
        let exceeded = Arc::new(Notify::new());
        let (limit, count) = (Self(exceeded.clone()), AtomicU32::new(0));
        hyper::ext::on_informational(request, move |early| {
            // Relaxed: the responses of one connection are read one after the other.
            if count.fetch_add(1, Ordering::Relaxed) >= MAX_INFORMATIONAL {
                exceeded.notify_one();
                return;
            }
            if let Some(client) = &client {
                // 1xx responses bypass the rest of the response's path, so they are cleaned here.
                let mut headers = early.headers().clone();
                clean_response(&mut headers);
                client.send(early.status(), &headers);
            }
        });
        limit
    }

    /// Awaits the response to the request; `None` if there were too many informational ones before it. The future of
    /// the response is dropped then, which closes its connection.
    ///
    /// # Cancel safety
    /// As that of `response`.
    pub(crate) async fn enforce<T>(&self, response: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // A response is the better answer, even if it has come after too many others.
            biased;
            response = response => Some(response),
            () = self.0.notified() => None,
        }
    }

    /// The error in Go's words.
    pub(crate) fn error_text() -> String {
        "net/http: too many 1xx informational responses".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Body;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_flood_of_interim_responses_ends_the_exchange_and_its_connection() {
        for (count, passes) in [(MAX_INFORMATIONAL, true), (MAX_INFORMATIONAL + 1, false)] {
            let (here, mut there) = tokio::io::duplex(64 << 10);
            let (mut sender, connection) = http1::handshake::<_, Body>(TokioIo::new(here)).await.unwrap();
            let driven = tokio::spawn(connection);
            let mut request = Request::new(Body::empty());
            let limit = InterimLimit::of(&mut request, None);
            let backend = async {
                // Before the request, anything would be an unexpected message.
                there.read_exact(&mut [0; 8]).await.unwrap();
                let early = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count as usize);
                there.write_all(early.as_bytes()).await.unwrap();
                if passes {
                    let last = b"HTTP/1.1 204 No Content\r\n\r\n";
                    there.write_all(last).await.unwrap();
                }
                // Until the other side closes, unless it is used further.
                if !passes {
                    there.read_to_end(&mut Vec::new()).await.unwrap();
                }
            };
            let response = limit.enforce(sender.send_request(request));
            let (response, ()) = tokio::join!(response, backend);
            let status = response.map(|r| r.map(|r| r.status().as_u16()).map_err(|e| e.to_string()));
            assert_eq!(status, passes.then_some(Ok(204)), "{count}");
            if passes {
                drop(sender);
            }
            let _ = driven.await.unwrap();
        }
    }
}
