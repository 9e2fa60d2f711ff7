//! [`EventType`]: ADDED, MODIFIED or DELETED.

/// The kind of a change as one watcher sees it, after applying its selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object was created, or now matches.
    Added,
    /// The object changed and still matches.
    Modified,
    /// The object was deleted, or no longer matches.
    Deleted,
}
