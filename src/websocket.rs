//! WebSocket (RFC 6455) towards clients: the handshake, and messages with limits on sizes and waits.
//!
//! [`requested`] recognises a request, [`Handshake::read`] checks it, and [`Handshake::accept`] starts a task
//! that owns the connection and a [`WebSocket`]. The callers interpret the messages: watches, logs and
//! streams to kubelets. WebSocket connections that are only proxied (`proxy`) do not use this module.

mod connection;
mod handshake;

pub(crate) use connection::{Limits, Message, PING_INTERVAL, Receiver, Sender, WebSocket};
pub(crate) use handshake::{Handshake, offered, requested};
