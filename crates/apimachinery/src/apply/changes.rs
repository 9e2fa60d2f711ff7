//! The fields a write changes, in terms of each API version that managers recorded their fields in.
//!
//! [`Changes`] converts and compares the objects once per distinct shape, however many managers and versions
//! there are.

use super::fieldset::FieldSet;
use super::managed::ManagedEntry;
use super::typed::{self, Comparison};
use super::{ApplySchema, AtVersion, Versions};
use crate::value::Value;

/// Shapes that an object is converted to, at most. Clients choose the versions of the entries, and a definition may
/// have thousands: each conversion walks the whole object. Entries of further ones are treated as if they had the shape
/// of the write.
pub(super) const MAX_SHAPES: usize = 16;

/// The fields a write changes, in one shape.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// Fields added or modified; the writer becomes their owner.
    pub acquired: FieldSet,
    /// Fields removed; they lose all owners.
    pub removed: FieldSet,
}

impl From<Comparison> for Change {
    fn from(c: Comparison) -> Self {
        let mut acquired = c.added;
        acquired.absorb(c.modified);
        Self {
            acquired,
            removed: c.removed,
        }
    }
}

impl Change {
    /// Removes the changed fields from an entry of another manager.
    pub(super) fn remove_from(&self, entry: &mut ManagedEntry) {
        entry.remove_fields(&self.acquired);
        entry.remove_fields(&self.removed);
    }
}

/// The fields a write changes, in every shape that the entries use.
pub(super) struct Changes<'a, S> {
    here: Change,
    api_version: &'a str,
    versions: &'a dyn Versions<S>,
    /// `None` where the objects do not convert: the attempt takes long, too, and is not repeated for each entry.
    others: Vec<(usize, Option<Change>)>,
}

impl<'a, S: ApplySchema> Changes<'a, S> {
    /// `here` is the change in the version of the write. Drops the entries whose version is no longer served.
    pub(super) fn new(
        here: Comparison,
        api_version: &'a str,
        versions: &'a dyn Versions<S>,
        (live, new): (Option<&Value>, &Value),
        entries: &mut Vec<ManagedEntry>,
    ) -> Self {
        let mut changes = Self {
            here: here.into(),
            api_version,
            versions,
            others: Vec::new(),
        };
        // Entries of versions no longer served are dropped: nothing can convert their paths, and upstream drops them
        // too.
        let own = versions.shape(api_version);
        entries.retain(|e| {
            if e.api_version == api_version {
                return true;
            }
            let shape = versions.shape(&e.api_version);
            // Compared once per shape; the writer's own shape is in `here`.
            // Without a live object there is nothing to lose: the entries of a create are the client's own.
            if let (Some(live), Some(there)) = (live, shape)
                && shape != own
                && changes.others.len() < MAX_SHAPES
                && changes.others.iter().all(|(other, _)| *other != there)
            {
                let change = changes.compare(&e.api_version, live, new);
                changes.others.push((there, change));
            }
            shape.is_some()
        });
        changes
    }

    fn compare(&self, api_version: &str, live: &Value, new: &Value) -> Option<Change> {
        // Both sides have to convert; one that failed gives no comparison, and the change in the writer's version
        // applies.
        match (self.versions.at(live, api_version), self.versions.at(new, api_version)) {
            (AtVersion::Converted(live, schema), AtVersion::Converted(new, _)) => {
                Some(typed::compare(&live, &new, schema).into())
            }
            _ => None,
        }
    }

    /// The change in the version of the write.
    pub(super) fn here(self) -> Change {
        self.here
    }

    /// The change in the version of `entry`.
    pub(super) fn of(&self, entry: &ManagedEntry) -> &Change {
        // Built-in kinds mostly have one shape; this skips a lookup per entry.
        if entry.api_version == self.api_version || self.others.is_empty() {
            return &self.here;
        }
        let shape = self.versions.shape(&entry.api_version);
        let there = self.others.iter().find(|(s, _)| Some(*s) == shape);
        there.and_then(|(_, change)| change.as_ref()).unwrap_or(&self.here)
    }
}
