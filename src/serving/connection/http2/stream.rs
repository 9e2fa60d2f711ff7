//! [`Stream`]: one HTTP/2 stream. The connection's task polls it: it polls the handler, then sends the response as
//! flow control permits, with informational responses before. Accepting streams is left to the parent module.

use super::head::{self, Date};
use crate::request::informational::{self, H2InformationalQueue};
use crate::request::{Body, OnDemandBody, Response, ResponseFuture};
use crate::serving::activity::InFlight;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http_body::Body as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

/// Maximum number of body frames sent per poll, so that the other streams get their share.
const FRAMES: usize = 32;
/// Maximum number of bytes of informational responses on one stream; flow control does not apply to headers.
const MAX_INFORMATIONAL_BYTES: usize = 64 << 10;

/// An accepted stream. Dropping it resets the stream unless it has ended.
pub(super) struct Stream<'a> {
    number: u32,
    /// True if the request method was HEAD.
    head_alone: bool,
    respond: SendResponse<Bytes>,
    in_flight: InFlight,
    phase: Phase<'a>,
}

enum Phase<'a> {
    /// The handler is running; the number counts the bytes of informational responses sent so far.
    Handling(ResponseFuture<'a>, usize),
    Responding(ResponseBody),
}

/// A response body being sent.
struct ResponseBody {
    body: Body,
    to: SendStream<Bytes>,
    /// Poll the body only while the client's window is open ([`OnDemandBody`]).
    on_demand: bool,
    /// Data waiting for the client's window; the flag marks the last chunk.
    chunk: Option<(Bytes, bool)>,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        number: u32,
        head_alone: bool,
        handling: ResponseFuture<'a>,
        respond: SendResponse<Bytes>,
        in_flight: InFlight,
    ) -> Self {
        Self {
            number,
            head_alone,
            respond,
            in_flight,
            phase: Phase::Handling(handling, 0),
        }
    }

    /// Ready when the stream has ended, for whatever reason.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        queue: &H2InformationalQueue,
        date: &mut Date,
        deadline: Instant,
    ) -> Poll<()> {
        if let Phase::Handling(handling, _) = &mut self.phase {
            let polled = handling.as_mut().poll(cx);
            if queue.is_loaded() {
                self.send_informational(queue);
            }
            let Poll::Ready(response) = polled else {
                // Registers interest in a reset, so that the handler is dropped when the client cancels the
                // request.
                return self.respond.poll_reset(cx).map(drop);
            };
            match self.send_response(response, date) {
                Ok(Some(sending)) => self.phase = Phase::Responding(sending),
                Ok(None) => return Poll::Ready(()),
                Err(error) => {
                    tracing::debug!(%error, "a response could not be sent");
                    self.reset();
                    return Poll::Ready(());
                }
            }
        }
        match &mut self.phase {
            Phase::Responding(sending) => sending.poll(cx, &mut self.in_flight, deadline),
            Phase::Handling(..) => Poll::Pending,
        }
    }

    /// Sends the queued informational responses ahead of the final one.
    pub(super) fn send_informational(&mut self, queue: &H2InformationalQueue) {
        let Phase::Handling(_, bytes_sent) = &mut self.phase else {
            return;
        };
        for early in queue.take(self.number) {
            *bytes_sent += informational::size(early.headers());
            // The rest is dropped: 1xx responses are hints, and the final one is not affected.
            if *bytes_sent > MAX_INFORMATIONAL_BYTES {
                return;
            }
            if let Err(error) = self.respond.send_informational(early) {
                tracing::debug!(%error, "an informational response could not be sent");
            }
        }
    }

    pub(super) fn reset(&mut self) {
        self.respond.send_reset(Reason::INTERNAL_ERROR);
    }

    /// Sends the head, and the body if it is complete already. Returns the remaining body.
    fn send_response(&mut self, mut response: Response, date: &mut Date) -> Result<Option<ResponseBody>, h2::Error> {
        let activity = self.in_flight.activity();
        head::finish(response.headers_mut(), activity, date);
        let on_demand = response.extensions().get::<OnDemandBody>().is_some();
        let mut body = std::mem::take(response.body_mut());
        let ends = body.is_end_stream();
        if !ends {
            head::announce_length(response.headers_mut(), &body);
        }
        let response = response.map(drop);
        // A HEAD response keeps the `Content-Length` announced above; its body is dropped unread.
        if ends || self.head_alone {
            self.respond.send_response(response, true)?;
            return Ok(None);
        }
        let mut to = self.respond.send_response(response, false)?;
        // While any body of this connection waits for the client's window, send this one chunk by chunk too:
        // stall detection must see whether the client accepts anything.
        if !activity.is_held()
            && let Some(whole) = body.take_full()
        {
            to.send_data(whole, true)?;
            return Ok(None);
        }
        if on_demand {
            to.reserve_capacity(1);
        }
        Ok(Some(ResponseBody {
            body,
            to,
            on_demand,
            chunk: None,
        }))
    }
}

impl ResponseBody {
    /// Ready when everything is sent, or when the client or the body has failed.
    fn poll(&mut self, cx: &mut Context<'_>, in_flight: &mut InFlight, deadline: Instant) -> Poll<()> {
        for sent in 0..FRAMES {
            if sent > 0 && Instant::now() >= deadline {
                break;
            }
            // Empty data, such as an end of stream that arrives after the last chunk, needs no window.
            let needs_room = match &self.chunk {
                Some((chunk, _)) => !chunk.is_empty(),
                None => self.on_demand,
            };
            while needs_room && self.to.capacity() == 0 {
                match self.to.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(()),
                    Poll::Pending => {
                        in_flight.wait();
                        return Poll::Pending;
                    }
                }
            }
            // h2 buffers what exceeds the window, and reports no capacity for the next chunk until that is
            // sent.
            if let Some((chunk, last)) = self.chunk.take()
                && (self.to.send_data(chunk, last).is_err() || last)
            {
                return Poll::Ready(());
            }
            if self.on_demand {
                // One byte is enough to learn that the window is open; reserving more would take it from
                // other streams.
                self.to.reserve_capacity(1);
                if self.to.capacity() == 0 {
                    continue;
                }
            }
            in_flight.release();
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                // Nothing to send now: watch for a reset, so that a cancelled watch ends at once rather than
                // at its next event.
                return self.to.poll_reset(cx).map(drop);
            };
            let sent = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        in_flight.hold();
                        // Likewise: one byte of the shared window, and none for an empty frame.
                        self.to.reserve_capacity(usize::from(!data.is_empty()));
                        self.chunk = Some((data, self.body.is_end_stream()));
                        continue;
                    }
                    Err(frame) => match frame.into_trailers() {
                        Ok(trailers) => self.to.send_trailers(trailers),
                        Err(_) => continue,
                    },
                },
                None => self.to.send_data(Bytes::new(), true),
                Some(Err(error)) => {
                    tracing::debug!(error, "a response body failed");
                    // Not an end of stream: the client must not take a truncated body for a complete one.
                    self.to.send_reset(Reason::INTERNAL_ERROR);
                    Ok(())
                }
            };
            if let Err(error) = sent {
                tracing::debug!(%error, "the end of a response could not be sent");
                self.to.send_reset(Reason::INTERNAL_ERROR);
            }
            return Poll::Ready(());
        }
        // The budget of this poll is used up; yield to the other streams.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
