//! Connections to a webhook: the Service is resolved and the certificate verified for each new connection.

use super::{ResolveService, Target};
use crate::proxy::dial::{self, DialError, Dialed, Offer};
use crate::proxy::io::Connection;
use crate::proxy::outbound::Outbound;
use crate::proxy::tls::ClientTls;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection as Connects};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Most addresses of a Service that are tried for one connection.
const ADDRESSES: usize = 3;

/// Connects to one webhook.
#[derive(Clone)]
pub(super) struct Connector(Arc<Inner>);

struct Inner {
    target: Target,
    tls: Arc<ClientTls>,
    outbound: Arc<Outbound>,
    services: Arc<dyn ResolveService>,
}

/// A connection, as the pool takes it.
pub(super) struct Io {
    io: TokioIo<Connection>,
    http2: bool,
}

impl Connector {
    pub fn new(
        target: Target,
        tls: Arc<ClientTls>,
        outbound: Arc<Outbound>,
        services: Arc<dyn ResolveService>,
    ) -> Self {
        Self(Arc::new(Inner {
            target,
            tls,
            outbound,
            services,
        }))
    }
}

impl Inner {
    async fn dial(&self, address: &str) -> Result<Dialed, DialError> {
        dial::dial_watched(address, &self.tls, Offer::Any, &self.outbound, 0).await
    }

    async fn connect(&self) -> Result<Dialed, DialError> {
        match &self.target {
            Target::Url(uri) => {
                let host = uri.host().unwrap_or_default();
                self.dial(&format!("{host}:{}", uri.port_u16().unwrap_or(443))).await
            }
            Target::Service {
                namespace, name, port, ..
            } => {
                let addresses = self.services.addresses(namespace, name, *port).map_err(DialError)?;
                let mut failed = None;
                for address in addresses.iter().take(ADDRESSES) {
                    match self.dial(address).await {
                        Ok(dialed) => return Ok(dialed),
                        Err(e) => failed = failed.or(Some(e)),
                    }
                }
                Err(failed.unwrap_or_else(|| DialError(format!("no endpoints available for service {name:?}"))))
            }
        }
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Io;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<Io, DialError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let inner = self.0.clone();
        async move {
            let dialed = inner.connect().await?;
            Ok(Io {
                http2: dialed.http2,
                io: TokioIo::new(dialed.io),
            })
        }
        .boxed()
    }
}

impl Connects for Io {
    fn connected(&self) -> Connected {
        match self.http2 {
            true => Connected::new().negotiated_h2(),
            false => Connected::new(),
        }
    }
}

impl Read for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

/// An error and its causes.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// The cause of a failed exchange in Go's wording.
pub(super) fn error_text(error: &(dyn Error + 'static)) -> String {
    for cause in chain(error) {
        if let Some(dial) = cause.downcast_ref::<DialError>() {
            return dial.0.clone();
        }
        if let Some(http) = cause.downcast_ref::<hyper::Error>()
            && (http.is_incomplete_message() || http.is_closed() || http.is_canceled())
        {
            return "EOF".to_owned();
        }
        if let Some(e) = cause.downcast_ref::<io::Error>() {
            return dial::system_error("read", e);
        }
    }
    chain(error).last().map_or_else(String::new, ToString::to_string)
}
