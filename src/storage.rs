//! Where objects live. One [`Storage`] trait, per resource; an object is its encoded bytes.

pub mod backend;
pub mod budget;
pub mod cacher;
pub mod continue_token;
pub mod embedded;
pub mod encryption;
pub mod entry;
pub mod etcd;
pub mod forms;
pub mod interface;
pub mod transform;

pub use backend::{Backend, ResourceConfig};
pub use budget::Budget;
pub use entry::{Draft, Entry};
pub use forms::Form;
pub use interface::{
    ContinueToken, Error, Event, EventType, ListOptions, Listing, MinRevision, Precondition, Predicate, Revision,
    Select, Storage, VersionMatch, Watch, WatchItem, WatchOptions,
};
