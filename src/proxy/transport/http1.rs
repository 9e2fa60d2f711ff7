//! The errors of HTTP/1.1 connections, in Go's words.

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
        return "EOF".into();
    }
    if e.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: {e}");
    }
    if e.is_canceled() || e.is_closed() {
        return if reused {
            "http: server closed idle connection".into()
        } else {
            "EOF".into()
        };
    }
    let mut text = e.to_string();
    let mut cause: Option<&dyn StdError> = e.source();
    while let Some(c) = cause {
        text = c.to_string();
        cause = c.source();
    }
    text
}
