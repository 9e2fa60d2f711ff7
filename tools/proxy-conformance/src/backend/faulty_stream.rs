//! A backend's side of a connection, which can be made to fail after any byte.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// How a connection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Closed without a TLS close_notify.
    Cut,
    /// Reset.
    Reset,
    /// Stalled: nothing is sent or closed until [`FaultPlan::release`].
    Stall,
    /// Every later byte is corrupted.
    Garbage,
}

/// The planned fault of one connection.
#[derive(Default)]
pub struct FaultPlan(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    fault: Option<(usize, Fault)>,
    stalled: Option<Waker>,
}

impl FaultPlan {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans the fault after this many more bytes.
    pub fn arm(&self, after: usize, fault: Fault) {
        self.inner().fault = Some((after, fault));
    }

    /// Whether no fault is planned.
    pub fn is_quiet(&self) -> bool {
        self.inner().fault.is_none()
    }

    /// Cuts a stalled connection.
    pub fn release(&self) {
        let mut inner = self.inner();
        if matches!(inner.fault, Some((_, Fault::Stall))) {
            inner.fault = Some((0, Fault::Cut));
        }
        if let Some(waker) = inner.stalled.take() {
            waker.wake();
        }
    }
}

/// The connection.
pub struct FaultyStream {
    io: TlsStream<TcpStream>,
    plan: Arc<FaultPlan>,
}

impl FaultyStream {
    /// A connection with a planned fault.
    pub fn new(io: TlsStream<TcpStream>, plan: Arc<FaultPlan>) -> Self {
        Self { io, plan }
    }
}

impl AsyncRead for FaultyStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for FaultyStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let planned = this.plan.inner().fault;
        let Some((left, fault)) = planned else {
            return Pin::new(&mut this.io).poll_write(cx, buf);
        };
        if left > 0 {
            let some = &buf[..left.min(buf.len())];
            let written = ready!(Pin::new(&mut this.io).poll_write(cx, some))?;
            this.plan.arm(left - written, fault);
            return Poll::Ready(Ok(written));
        }
        ready!(Pin::new(&mut this.io).poll_flush(cx))?;
        match fault {
            Fault::Garbage => {
                let other: Vec<u8> = buf.iter().map(|b| b ^ 0xa5).collect();
                Pin::new(&mut this.io).poll_write(cx, &other)
            }
            Fault::Stall => {
                let mut inner = this.plan.inner();
                if !matches!(inner.fault, Some((_, Fault::Stall))) {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                inner.stalled = Some(cx.waker().clone());
                Poll::Pending
            }
            Fault::Cut => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Fault::Reset => {
                this.io.get_ref().0.set_zero_linger()?;
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let reached = matches!(self.plan.inner().fault, Some((0, _)));
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        // All bytes before the fault have been written. The fault shows at the next byte or, if there is
        // none, here.
        if reached && let Some((0, fault)) = { self.plan.inner().fault } {
            match fault {
                Fault::Cut => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                Fault::Reset => {
                    self.io.get_ref().0.set_zero_linger()?;
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                Fault::Stall | Fault::Garbage => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
