//! The number and size of the stored objects of each resource, for estimating the cost of lists.

use crate::flowcontrol::work_estimate::{ObjectCounts, StoredObjects};
use crate::registry::StoreLookup;

/// The gateway's stores. A backend's resources are not among them: their lists cost this server little.
pub(crate) struct Stored(pub StoreLookup);

impl ObjectCounts for Stored {
    fn stored(&self, group: &str, resource: &str) -> Option<StoredObjects> {
        let storage = self.0.peek_storage(group, resource)?;
        let count = storage.count() as u64;
        Some(StoredObjects {
            count,
            // `checked_div`: there may be no objects.
            average_bytes: storage.resident_bytes().checked_div(count).unwrap_or(0),
        })
    }
}
