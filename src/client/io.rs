//! A connection's bytes, with a note of whether any came: what arrives shows that the peer is there, ping or not. With TLS
//! above them, or, on sockets of this machine, without.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A connection that notes what it hears.
#[derive(Debug)]
pub struct Io {
    bytes: Bytes,
    heard: Heard,
}

#[derive(Debug)]
enum Bytes {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection as HTTP is spoken on it.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly all are the large one")]
pub enum Wire {
    /// Under TLS.
    Tls(TlsStream<Io>),
    /// As it is.
    Plain(Io),
}

/// Whether bytes came since somebody asked. Clones ask about the same connection.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<AtomicBool>);

impl Heard {
    /// True where bytes came since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Io {
    /// Over a connection.
    pub fn new(tcp: TcpStream) -> Self {
        Self {
            bytes: Bytes::Tcp(tcp),
            heard: Heard::default(),
        }
    }

    /// Over a socket of this machine.
    pub fn unix(unix: UnixStream) -> Self {
        Self {
            bytes: Bytes::Unix(unix),
            heard: Heard::default(),
        }
    }

    /// Its ear.
    pub fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

impl Wire {
    /// Its ear.
    pub fn heard(&self) -> Heard {
        match self {
            Self::Tls(tls) => tls.get_ref().0.heard(),
            Self::Plain(io) => io.heard(),
        }
    }
}

/// The same call on whichever it is.
macro_rules! either {
    ($of:expr, $a:pat => $b:pat, $io:ident, $call:expr) => {
        match $of {
            $a => $call,
            $b => $call,
        }
    };
}

impl AsyncRead for Io {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = either!(&mut self.bytes, Bytes::Tcp(io) => Bytes::Unix(io), io, Pin::new(io).poll_read(cx, buf));
        if buf.filled().len() > before {
            self.heard.0.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, Self::Tls(io) => Self::Plain(io), io, Pin::new(io).poll_read(cx, buf))
    }
}

macro_rules! writes {
    ($ty:ty, $self:ident => $of:expr, $a:pat => $b:pat, $io:ident) => {
        impl AsyncWrite for $ty {
            fn poll_write(
                mut $self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                either!(&mut $of, $a => $b, $io, Pin::new($io).poll_write(cx, buf))
            }

            fn poll_write_vectored(
                mut $self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                either!(&mut $of, $a => $b, $io, Pin::new($io).poll_write_vectored(cx, bufs))
            }

            fn is_write_vectored(&$self) -> bool {
                either!(&$of, $a => $b, $io, $io.is_write_vectored())
            }

            fn poll_flush(mut $self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                either!(&mut $of, $a => $b, $io, Pin::new($io).poll_flush(cx))
            }

            fn poll_shutdown(mut $self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                either!(&mut $of, $a => $b, $io, Pin::new($io).poll_shutdown(cx))
            }
        }
    };
}

writes!(Io, self => self.bytes, Bytes::Tcp(io) => Bytes::Unix(io), io);
writes!(Wire, self => *self, Wire::Tls(io) => Wire::Plain(io), io);
