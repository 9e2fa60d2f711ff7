//! Tests of the verbs through the handler, with a hand-made resource over the embedded engine and without sockets.

mod cbor;
mod kept;
mod protobuf;
mod reads;
pub(super) mod support;
mod watches;
mod writes;
