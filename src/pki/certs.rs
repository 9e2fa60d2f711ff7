//! Certificates, keys and CA bundles that can be reloaded while the server runs.
//!
//! [`DynamicKeyPair`] and [`DynamicCa`] hold the last valid value; [`watch_files`] re-reads their files
//! periodically. An invalid replacement is logged once and ignored. Consumers that derive state from a source
//! (a TLS configuration, a proxy transport) subscribe to its changes.

mod ca;
mod key_pair;
mod source;
mod watcher;

pub use ca::{CaPool, DynamicCa};
pub(crate) use key_pair::{DynamicKeyPair, KeyPairData};
pub use source::CertError;
pub(crate) use source::Reload;
pub(crate) use watcher::watch_files;
