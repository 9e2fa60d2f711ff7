//! The verbs over the embedded engine with a hand-made row, through the handler, without sockets.

mod cbor;
mod kept;
mod protobuf;
mod reads;
mod support;
mod watches;
mod writes;
