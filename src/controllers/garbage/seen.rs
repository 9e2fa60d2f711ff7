//! [`Seen`]: the owners that the examination of one object has read. An object may have tens of thousands of
//! references, all to the same owner under different UIDs, or to owners that do not exist; each place is read
//! once.

use crate::apimachinery::value::Str;
use crate::controllers::discovery::Discovered;
use crate::controllers::objects::{OwnerReference, Tracked, Uid};
use std::collections::HashMap;
use std::sync::Arc;

/// Owners that are searched for in other namespaces. Each costs time in the number of namespaces, and only yields
/// an event.
const MAX_SEARCHES: usize = 16;

/// The parts of an owner that decide about its dependents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: Uid,
    pub(super) waits_for_dependents: bool,
}

/// The result of looking up the coordinates of a reference in the dependent's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Namespaced owners of cluster-scoped objects cannot be resolved.
    Invalid,
    Absent,
    Owner(Owner),
}

/// Places remembered. References to others are looked up again: remembering tens of thousands would block a reactor
/// for milliseconds, when the map grows and when it is freed.
const MAX_REMEMBERED: usize = 1024;

/// Group, kind and name of an owner.
type Place = (Str, Str, Str);

#[derive(Default)]
pub(super) struct Seen {
    owners: HashMap<Place, Found>,
    searches: usize,
    /// Discovery of the gateway, for kinds that are not watched.
    pub(super) served: Option<Arc<Discovered>>,
}

impl From<&Tracked> for Owner {
    fn from(object: &Tracked) -> Self {
        Self {
            uid: object.uid.clone(),
            waits_for_dependents: object.waits_for_dependents(),
        }
    }
}

impl From<Option<Owner>> for Found {
    fn from(owner: Option<Owner>) -> Self {
        owner.map_or(Self::Absent, Self::Owner)
    }
}

impl Seen {
    fn place(reference: &OwnerReference) -> Place {
        // Neither UID nor namespace: the UID is compared afterwards, and all references of an object share its
        // namespace.
        (reference.group().into(), reference.kind.clone(), reference.name.clone())
    }

    pub(super) fn get(&self, reference: &OwnerReference) -> Option<Found> {
        self.owners.get(&Self::place(reference)).cloned()
    }

    pub(super) fn remember(&mut self, reference: &OwnerReference, found: &Found) {
        if self.owners.len() < MAX_REMEMBERED {
            self.owners.insert(Self::place(reference), found.clone());
        }
    }

    /// Whether another owner may be searched for in other namespaces.
    pub(super) fn may_search(&mut self) -> bool {
        // Counts the question, not the result: a search that finds nothing costs as much.
        self.searches += 1;
        self.searches <= MAX_SEARCHES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_cached_by_reference_and_searches_are_limited() {
        let mut seen = Seen::default();
        let reference = |uid: &str, name: &str| OwnerReference {
            uid: uid.into(),
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: name.into(),
            controller: None,
            blocks: None,
        };
        let found = Found::Owner(Owner {
            uid: "a".into(),
            waits_for_dependents: false,
        });
        seen.remember(&reference("a", "d"), &found);
        assert_eq!(seen.get(&reference("b", "d")), Some(found), "the UID does not matter");
        assert_eq!(seen.get(&reference("a", "e")), None);
        for n in 0..2 * MAX_REMEMBERED {
            seen.remember(&reference("c", &n.to_string()), &Found::Absent);
        }
        assert_eq!(seen.owners.len(), MAX_REMEMBERED);
        let searches = (0..100).filter(|_| seen.may_search()).count();
        assert_eq!(searches, MAX_SEARCHES);
    }
}
