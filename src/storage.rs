//! Object storage. The generic registry uses one [`Storage`] per resource, created by a [`Backend`]: the
//! embedded write-ahead log ([`embedded`]) or etcd ([`etcd`]). Both keep the resource in a watch cache
//! ([`cacher`]) and may encrypt it at rest ([`encryption`]).
//!
//! An object is handled as its encoded JSON bytes ([`Entry`]). Validation, defaulting and admission are the
//! registry's.

pub(crate) mod backend;
pub(crate) mod budget;
pub(crate) mod cached_encodings;
pub(crate) mod cacher;
mod compaction;
pub(crate) mod continue_token;
pub(crate) mod embedded;
pub(crate) mod encoding_cache;
pub(crate) mod encryption;
pub(crate) mod entry;
pub(crate) mod etcd;
pub(crate) mod event_type;
pub(crate) mod extracted_fields;
pub(crate) mod interface;
mod kms_error;
mod large;
pub(crate) mod revision;
pub(crate) mod select;
pub(crate) mod stored_json;
pub(crate) mod transform;
mod undecodable;
mod version_place;

pub use backend::{Backend, ResourceConfig};
pub use budget::Budget;
pub(crate) use compaction::Compaction;
pub(crate) use encoding_cache::EncodingKey;
pub use entry::{Draft, Entry};
pub use event_type::EventType;
pub use interface::{
    ContinueToken, Error, ListOptions, MinRevision, Precondition, Storage, VersionMatch, Watch, WatchItem, WatchOptions,
};
pub(crate) use interface::{Event, Listing};
pub use revision::Revision;
pub use select::Predicate;
pub(crate) use select::Select;
pub use undecodable::Undecodable;
