//! [`PluralIndex`] and [`NameIndex`]: find the criteria that can match a resource, so that the number of webhooks and
//! policies for other resources does not matter to a write.

use super::Criteria;
use crate::apimachinery::value::Str;
use imbl::{OrdMap, OrdSet};
use std::collections::HashMap;
use std::sync::Arc;

/// Positions in a list of criteria, by the plural of the resources that they select. Groups and versions are
/// not part of the key: equivalent resources have the same plural in other groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct PluralIndex {
    by_plural: HashMap<Str, Vec<usize>>,
    /// Criteria that select any resource.
    any: Vec<usize>,
}

impl PluralIndex {
    /// The index of a list.
    pub(crate) fn new<'c>(all: impl Iterator<Item = &'c Criteria>) -> Self {
        let mut index = Self::default();
        for (position, criteria) in all.enumerate() {
            let Some(names) = plurals(criteria) else {
                index.any.push(position);
                continue;
            };
            for name in names {
                let list = index.by_plural.entry(name.clone()).or_default();
                // Positions ascend, so a duplicate can only be the last one.
                if list.last() != Some(&position) {
                    list.push(position);
                }
            }
        }
        index
    }

    /// True if [`candidates`](Self::candidates) is not empty.
    pub(crate) fn has_candidates(&self, plural: &str) -> bool {
        !self.any.is_empty() || self.by_plural.contains_key(plural)
    }

    /// The positions of the criteria that can match this resource, in ascending order.
    pub(crate) fn candidates(&self, plural: &str) -> impl Iterator<Item = usize> {
        let named = self.by_plural.get(plural).into_iter().flatten();
        merged(named.copied(), self.any.iter().copied())
    }
}

/// As [`PluralIndex`], with names instead of positions. It is persistent: a clone is cheap, and changing one entry takes
/// time in what its criteria select, not in the number of entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameIndex {
    by_plural: OrdMap<Str, OrdSet<Arc<str>>>,
    /// Criteria that select any resource.
    any: OrdSet<Arc<str>>,
}

impl NameIndex {
    pub(crate) fn insert(&mut self, name: &Arc<str>, criteria: &Criteria) {
        let Some(plurals) = plurals(criteria) else {
            self.any.insert(name.clone());
            return;
        };
        for plural in plurals {
            let names = self.by_plural.entry(plural.clone()).or_default();
            names.insert(name.clone());
        }
    }

    /// Removes what was inserted under this name, with these criteria.
    pub(crate) fn remove(&mut self, name: &str, criteria: &Criteria) {
        let Some(plurals) = plurals(criteria) else {
            self.any.remove(name);
            return;
        };
        for plural in plurals {
            // Criteria may name a resource several times.
            let Some(names) = self.by_plural.get_mut(plural) else {
                continue;
            };
            names.remove(name);
            if names.is_empty() {
                self.by_plural.remove(plural);
            }
        }
    }

    /// True if [`candidates`](Self::candidates) is not empty.
    pub(crate) fn has_candidates(&self, plural: &str) -> bool {
        !self.any.is_empty() || self.by_plural.contains_key(plural)
    }

    /// The names of the criteria that can match this resource, in ascending order.
    pub(crate) fn candidates(&self, plural: &str) -> impl Iterator<Item = &Arc<str>> {
        let named = self.by_plural.get(plural).into_iter().flatten();
        merged(named, self.any.iter())
    }
}

/// Merges two ascending sequences: callers depend on the order of the configuration.
fn merged<T: Ord>(named: impl Iterator<Item = T>, any: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let (mut named, mut any) = (named.peekable(), any.peekable());
    std::iter::from_fn(move || match (named.peek(), any.peek()) {
        (Some(a), Some(b)) if b < a => any.next(),
        (None, _) => any.next(),
        _ => named.next(),
    })
}

/// The plurals that criteria can select; `None` if that is any.
fn plurals(criteria: &Criteria) -> Option<Vec<&Str>> {
    if criteria.rules.is_empty() && criteria.all_without_rules {
        return None;
    }
    let mut all = Vec::new();
    for rule in &criteria.rules {
        all.extend(rule.plurals()?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::value::Value;
    use crate::json;

    fn criteria_for(resources: Value) -> Criteria {
        let mut rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"]});
        rule.set(&["resources"], resources);
        let mut webhook = json!({});
        webhook.set(&["rules"], vec![rule]);
        Criteria::of_webhook(&webhook)
    }

    #[test]
    fn only_criteria_that_name_the_plural_or_any_are_candidates_in_order() {
        let all = [
            criteria_for(json!(["pods", "pods/status"])),
            criteria_for(json!(["*/*"])),
            criteria_for(json!(["nodes", "pods"])),
            Criteria::of_webhook(&json!({})),
            Criteria::of_policy(&json!({})),
        ];
        let index = PluralIndex::new(all.iter());
        let candidates = |plural| index.candidates(plural).collect::<Vec<_>>();
        assert_eq!(candidates("pods"), [0, 1, 2, 4]);
        assert_eq!(candidates("nodes"), [1, 2, 4]);
        assert_eq!(candidates("secrets"), [1, 4]);
        let one = PluralIndex::new(all[..1].iter());
        assert_eq!(
            ["pods", "nodes"].map(|plural| one.has_candidates(plural)),
            [true, false]
        );
    }

    #[test]
    fn names_are_found_until_they_are_removed() {
        let all = [
            ("c", criteria_for(json!(["pods", "pods/status"]))),
            ("b", criteria_for(json!(["*/*"]))),
            ("a", criteria_for(json!(["nodes", "pods"]))),
        ];
        let mut index = NameIndex::default();
        for (name, criteria) in &all {
            index.insert(&Arc::from(*name), criteria);
        }
        let candidates = |index: &NameIndex, plural: &str| {
            let names: Vec<&str> = index.candidates(plural).map(|name| &**name).collect();
            names.concat()
        };
        assert_eq!(candidates(&index, "pods"), "abc");
        assert_eq!(candidates(&index, "nodes"), "ab");
        assert_eq!(candidates(&index, "secrets"), "b");
        let before = index.clone();
        for (name, criteria) in &all[1..] {
            index.remove(name, criteria);
        }
        assert_eq!(candidates(&index, "pods"), "c");
        assert!(index.has_candidates("pods") && !index.has_candidates("nodes"));
        index.remove("c", &all[0].1);
        assert!(index.by_plural.is_empty() && index.any.is_empty());
        assert_eq!(candidates(&before, "pods"), "abc");
    }
}
