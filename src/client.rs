//! Reading the gateway's own objects from inside: informers over storage.

pub mod informer;

pub use informer::{Change, Informer, InformerHandle};
