//! [`Revision`], the position of a write in the order of all writes.

/// Sequence number of a write. Every committed change to any resource increments it; it survives restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);
