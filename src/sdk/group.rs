//! A group version as a value: its kinds and its discovery priorities. Served by an
//! [`ApiServer`](super::ApiServer) or by a gateway in its own process.

use super::kind::unusable;
use super::{Error, Kind};
use crate::admission::Admission;
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::validation::{dns1035_label, dns1123_subdomain};
use crate::endpoints::discovery::aggregated::Priorities;
use crate::registry::Store;
use crate::registry::resource::Resource;
use crate::storage::Storage;
use std::sync::Arc;

/// Default priorities, which place a group after the built-in ones.
const PRIORITIES: Priorities = Priorities {
    group: 1000,
    version: 15,
};

/// A group version and its kinds.
///
/// ```
/// use torana::json;
/// use torana::sdk::{ApiGroup, Kind};
///
/// let note = Kind::namespaced("Note", "notes", json!({"type": "object"}));
/// let group = ApiGroup::new("notes.example.com", "v1", [note]).with_priorities(1500, 20);
/// assert_eq!(group.group_version().to_string(), "notes.example.com/v1");
/// ```
pub struct ApiGroup {
    gv: GroupVersion,
    kinds: Vec<Kind>,
    priorities: Priorities,
}

impl ApiGroup {
    /// A group version with these kinds.
    pub fn new(group: &str, version: &str, kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self {
            gv: GroupVersion::new(group, version),
            kinds: kinds.into_iter().collect(),
            priorities: PRIORITIES,
        }
    }

    /// Sets the discovery priorities, with the meaning of `spec.groupPriorityMinimum` and
    /// `spec.versionPriority` of an APIService.
    pub fn with_priorities(mut self, group: i64, version: i64) -> Self {
        self.priorities = Priorities { group, version };
        self
    }

    /// The group version that the kinds are served in.
    pub fn group_version(&self) -> &GroupVersion {
        &self.gv
    }

    pub(crate) fn priorities(&self) -> Priorities {
        self.priorities
    }

    /// Builds the resources with their stores.
    ///
    /// # Errors
    /// An invalid name, priority or schema.
    pub(crate) fn serve(
        self,
        storage: &dyn Fn(&Resource) -> Arc<dyn Storage>,
        admission: &Arc<dyn Admission>,
    ) -> Result<(GroupVersion, Vec<(Arc<Resource>, Arc<Store>)>), Error> {
        let Self { gv, kinds, priorities } = self;
        let mut wrong = dns1123_subdomain(&gv.group);
        // Upstream's rules for the group and version of an APIService.
        wrong.extend(dns1035_label(&gv.version));
        // The bounds of an APIService, which a gateway creates for the group.
        if !(1..=20_000).contains(&priorities.group) || !(1..=1000).contains(&priorities.version) {
            wrong.push("priorities are at least 1, of a group at most 20000, of a version at most 1000".to_owned());
        }
        if let Some(why) = wrong.first() {
            return Err(Error::Group {
                gv,
                reason: why.clone(),
            });
        }
        let mut served: Vec<(Arc<Resource>, Arc<Store>)> = Vec::new();
        for kind in kinds {
            let (row, store) = kind.serve(&gv, storage, admission)?;
            // Two rows of one path would shadow each other without an error.
            if served.iter().any(|(other, _)| other.gvr == row.gvr) {
                let plural = &row.gvr.resource;
                return Err(unusable(
                    &row.kind,
                    plural,
                    "another kind of the group has this plural name",
                ));
            }
            served.push((row, store));
        }
        Ok((gv, served))
    }
}
