//! Object storage. The generic registry uses one [`Storage`] per resource, created by a [`Backend`]: the embedded
//! write-ahead log ([`embedded`]) or etcd ([`etcd`]). Both keep the resource in a watch cache ([`cacher`]) and may
//! encrypt it at rest ([`encryption`]).
//!
//! An object is handled as its encoded JSON bytes ([`Entry`]). Validation, defaulting and admission are the
//! registry's.

pub mod backend;
pub mod budget;
pub mod cacher;
mod compaction;
pub mod continue_token;
pub mod embedded;
pub mod encoding_cache;
pub mod encryption;
pub mod entry;
pub mod etcd;
pub mod interface;
pub mod transform;
mod version_place;

pub use backend::{Backend, ResourceConfig};
pub use budget::Budget;
pub use compaction::Compaction;
pub use encoding_cache::EncodingKey;
pub use entry::{Draft, Entry, KnownShape};
pub use interface::{
    ContinueToken, Error, Event, EventType, ListOptions, Listing, MinRevision, Precondition, Predicate, Revision,
    Select, Storage, VersionMatch, Watch, WatchItem, WatchOptions,
};
