//! Certificates that may change while the server runs: read from files, validated, then swapped whole.
//!
//! A source holds the last good value; a bad replacement is reported once and the old value stays. Whoever derives
//! something from a source (a TLS configuration, a proxy transport) subscribes to its changes.

mod ca;
mod key_pair;
mod source;
mod watcher;

pub use ca::{CaPool, DynamicCa};
pub use key_pair::{DynamicKeyPair, KeyPairData};
pub use source::{CertError, Reload};
pub use watcher::watch_files;
