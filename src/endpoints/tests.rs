//! Tests of the verbs through the handler, with a hand-made resource over the embedded engine and without
//! sockets.

mod cached_encodings;
mod cbor;
mod member_order;
mod protobuf;
mod reads;
pub(super) mod support;
mod watches;
mod writes;
