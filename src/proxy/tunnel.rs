//! Tunnels of upgraded connections: copies bytes between client and backend until either side ends.
//!
//! Entry points: [`client_side`] before the request is forwarded, then [`start`] or [`refusal`] for the
//! backend's response.

use crate::request::body::BoxError;
use crate::request::{Body, Request, RequestContext, Response, UntilUpgradeEnds};
use crate::tasks::TaskGroup;
use bytes::Bytes;
use http::request::Parts;
use http::{Extensions, HeaderValue, Version, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;

/// Time for the body of a refusal, as upstream: it is an error message, and its connection is not reused.
const REFUSAL_LIMIT: Duration = Duration::from_secs(10);

/// The client's side of an upgrade that may follow.
pub(crate) struct ClientSide {
    upgrade: OnUpgrade,
    /// Tells the server's connection task that the tunnel has ended, when dropped.
    held: Option<UntilUpgradeEnds>,
    guard: Option<Box<dyn Any + Send>>,
}

impl ClientSide {
    /// Holds `guard` until the tunnel has ended or turned out not to start.
    pub(crate) fn holding(mut self, guard: impl Any + Send) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Waits for the 101 response to be sent, and returns the connection with the guards that are held until
    /// it ends.
    ///
    /// # Errors
    /// The client's connection ended before.
    pub(crate) async fn opened(self) -> hyper::Result<(TokioIo<Upgraded>, impl Send)> {
        let io = TokioIo::new(self.upgrade.await?);
        Ok((io, (self.held, self.guard)))
    }
}

/// Takes the client's side of an upgrade; `None` if its protocol does not support upgrades.
pub(crate) fn client_side(request: &mut Request) -> Option<ClientSide> {
    let version = request.version();
    take(version, request.extensions_mut())
}

/// [`client_side`] of a request without its body.
pub(crate) fn client_side_of(head: &mut Parts) -> Option<ClientSide> {
    take(head.version, &mut head.extensions)
}

fn take(version: Version, extensions: &mut Extensions) -> Option<ClientSide> {
    let is_http1 = matches!(version, Version::HTTP_10 | Version::HTTP_11);
    // HTTP/2 cannot turn over a connection that other requests share.
    let upgrade = extensions.remove::<OnUpgrade>().filter(|_| is_http1)?;
    let context = extensions.get_mut::<RequestContext>();
    Some(ClientSide {
        upgrade,
        held: context.and_then(|c| c.until_upgrade_ends.take()),
        guard: None,
    })
}

/// Starts a tunnel in a task of `tasks`. Returns false if the group is stopping; both connections then close.
#[must_use]
pub(crate) fn start(client: ClientSide, backend: OnUpgrade, tasks: &TaskGroup) -> bool {
    let stop = tasks.stop_signal().clone();
    tasks.spawn("upgrade tunnel", async move {
        // Both sides or neither: if one fails, the other is dropped, which closes its connection.
        let ((client, _held), backend) = match tokio::try_join!(client.opened(), backend) {
            Ok(both) => both,
            Err(e) => return tracing::debug!("upgrade failed: {e}"),
        };
        // Whichever comes first ends both connections by dropping them.
        tokio::select! {
            () = copy_until_either_ends(client, TokioIo::new(backend)) => {}
            () = stop.wait() => {}
        }
    })
}

/// Passes on the response of a backend that refuses the upgrade, and closes the connection behind it. A body
/// that is incomplete after ten seconds is cut off.
pub(crate) fn refusal(response: http::Response<Incoming>) -> Response {
    let mut response = response.map(|body| {
        Body::stream(BodyWithDeadline {
            body,
            end: Box::pin(tokio::time::sleep(REFUSAL_LIMIT)),
        })
    });
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

struct BodyWithDeadline {
    body: Incoming,
    end: Pin<Box<Sleep>>,
}

impl http_body::Body for BodyWithDeadline {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // The body first: what has arrived is delivered even after the deadline.
        if let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(next.map(|frame| frame.map_err(Into::into)));
        }
        self.end.as_mut().poll(cx).map(|()| {
            let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
            Some(Err(late.into()))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn copy_until_either_ends(a: impl AsyncRead + AsyncWrite, b: impl AsyncRead + AsyncWrite) {
    let (mut a_read, mut a_write) = tokio::io::split(a);
    let (mut b_read, mut b_write) = tokio::io::split(b);
    // The end of either direction ends the tunnel; `copy` has written everything it read by then.
    let ended = tokio::select! {
        r = tokio::io::copy(&mut a_read, &mut b_write) => r,
        r = tokio::io::copy(&mut b_read, &mut a_write) => r,
    };
    if let Err(e) = ended {
        tracing::debug!("a tunnel broke off: {e}");
    }
    // Shuts down TLS properly, so that the peer can tell the end from a truncation.
    let _ = tokio::join!(
        tokio::io::AsyncWriteExt::shutdown(&mut a_write),
        tokio::io::AsyncWriteExt::shutdown(&mut b_write)
    );
}
