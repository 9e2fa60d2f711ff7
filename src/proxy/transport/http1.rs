//! The errors of HTTP/1.1 connections, in Go's words. Entry point: [`error_text`]. Whether a failed request
//! may be sent again is decided in `exchange`.

use crate::proxy::tcp;
use std::error::Error as StdError;
use std::io;

/// The I/O error behind an error of hyper, if there is one.
pub(super) fn root_io(e: &hyper::Error) -> Option<&io::Error> {
    let mut cause = e.source();
    while let Some(c) = cause {
        if let Some(io) = c.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = c.source();
    }
    None
}

/// The error in Go's wording where Go has an equivalent one.
pub(super) fn error_text(e: &hyper::Error, reused: bool) -> String {
    if let Some(io) = root_io(e) {
        return tcp::system_error("read", io);
    }
    if e.is_incomplete_message() {
        // The connection ended before the response's head was complete: Go's `io.EOF`.
        return "EOF".into();
    }
    if e.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: {e}");
    }
    if e.is_canceled() || e.is_closed() {
        // The request was dropped with its connection. Go blames an idle timeout at the server
        // (`errServerClosedIdle`) only if the connection had been used before.
        return if reused {
            "http: server closed idle connection".into()
        } else {
            "EOF".into()
        };
    }
    // The outermost text of hyper names only the category of the error; the root cause tells what happened.
    let mut text = e.to_string();
    let mut cause: Option<&dyn StdError> = e.source();
    while let Some(c) = cause {
        text = c.to_string();
        cause = c.source();
    }
    text
}
