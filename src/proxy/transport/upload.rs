//! Uploads a request body on an HTTP/2 stream, while the response may already arrive. Entry point: [`start`].

use crate::proxy::headers::clean_trailers;
use crate::request::Body;
use crate::tasks::TaskGroup;
use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::oneshot;

/// Ties an upload task to its exchange: dropping it cancels the stream.
pub(super) struct Upload(oneshot::Sender<()>);

/// The upload in progress.
struct Pump {
    body: Body,
    stream: SendStream<Bytes>,
    /// A chunk waiting for flow-control capacity.
    chunk: Bytes,
}

/// Sends as much as the window allows and spawns a task for the rest, if any.
pub(super) async fn start(body: Body, stream: SendStream<Bytes>, tasks: &TaskGroup) -> Option<Upload> {
    let mut pump = Pump {
        body,
        stream,
        chunk: Bytes::new(),
    };
    // Polled exactly once: most bodies are small and complete, and then need no task. A spawned task polls
    // again and registers its own waker.
    if poll_fn(|cx| Poll::Ready(pump.poll(cx).is_ready())).await {
        return None;
    }
    let (exchange, mut over) = oneshot::channel();
    // On shutdown the task is not spawned: the dropped pump leaves the stream to end with its connection.
    tasks.spawn("upload to a backend", async move {
        let mut tied = true;
        poll_fn(|cx| {
            // A oneshot must not be polled after its completion, hence `tied`.
            if tied && let Poll::Ready(over) = Pin::new(&mut over).poll(cx) {
                tied = false;
                // Dropped without `detach`: the exchange was cancelled, so the backend must not take the body
                // for complete.
                if over.is_err() {
                    pump.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(());
                }
            }
            pump.poll(cx)
        })
        .await;
    });
    Some(Upload(exchange))
}

// === impl Upload ===

impl Upload {
    /// The response is complete: detaches the upload, so that the rest of the request may still be sent.
    pub(super) fn detach(self) {
        // An error means that the upload has already ended.
        let _ = self.0.send(());
    }
}

// === impl Pump ===

impl Pump {
    /// Ready when the upload has ended: everything is sent, or the stream or the body failed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Polled in each round to register this task, so that a reset wakes it in every state.
            if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(());
            }
            while !self.chunk.is_empty() {
                if self.stream.capacity() == 0 {
                    // h2 may grant less; the loop sends what it gets.
                    self.stream.reserve_capacity(self.chunk.len());
                    match ready!(self.stream.poll_capacity(cx)) {
                        Some(Ok(_)) => continue,
                        Some(Err(_)) | None => return Poll::Ready(()),
                    }
                }
                let some = self.stream.capacity().min(self.chunk.len());
                let piece = self.chunk.split_to(some);
                let last = self.chunk.is_empty() && self.body.is_end_stream();
                // An error means that the stream was reset: the rest is not needed.
                if self.stream.send_data(piece, last).is_err() || last {
                    return Poll::Ready(());
                }
            }
            let done = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        // Asked for early: it may be granted by the time it is needed.
                        self.stream.reserve_capacity(data.len());
                        self.chunk = data;
                        continue;
                    }
                    Err(frame) => match frame.into_trailers() {
                        Ok(mut trailers) => {
                            clean_trailers(&mut trailers);
                            self.stream.send_trailers(trailers)
                        }
                        Err(_) => continue,
                    },
                },
                None => self.stream.send_data(Bytes::new(), true),
                Some(Err(e)) => {
                    tracing::debug!("a client's body broke off: {e}");
                    // Without a reset the backend would wait for the rest.
                    self.stream.send_reset(Reason::CANCEL);
                    Ok(())
                }
            };
            if let Err(e) = done {
                tracing::debug!("a request's end could not be sent: {e}");
            }
            return Poll::Ready(());
        }
    }
}
