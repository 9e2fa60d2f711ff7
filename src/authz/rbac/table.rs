//! Rules, indexed by what they name, so that a decision is a handful of look-ups however many rules there are.
//!
//! resource (as the rule spells it) → verb → group → names; each end is the position of the first rule that says so.

use super::objects::PolicyRule;
use crate::apimachinery::value::Str;
use crate::authz::Attributes;
use std::collections::HashMap;

type Level<T> = HashMap<Str, T>;

/// An index over rules. Positions are the caller's.
#[derive(Default)]
pub(super) struct Table {
    resources: Level<Level<Level<Slot>>>,
    paths: Level<Level<usize>>,
    /// Paths that end in `*`, without it.
    prefixes: Vec<(Str, Level<usize>)>,
}

/// Rules for one resource, verb and group.
#[derive(Default)]
struct Slot {
    /// The first without names.
    any: Option<usize>,
    named: Level<usize>,
}

fn keep_first(at: usize, slot: &mut Option<usize>) {
    *slot = Some(slot.map_or(at, |old| old.min(at)));
}

fn lower(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Table {
    pub fn of<'r>(rules: impl Iterator<Item = (usize, &'r PolicyRule)>) -> Self {
        let mut me = Self::default();
        for (at, rule) in rules {
            me.add(at, rule);
        }
        me
    }

    fn add(&mut self, at: usize, rule: &PolicyRule) {
        for resource in &rule.resources {
            let verbs = self.resources.entry(resource.clone()).or_default();
            for verb in &rule.verbs {
                let groups = verbs.entry(verb.clone()).or_default();
                for group in &rule.api_groups {
                    let slot = groups.entry(group.clone()).or_default();
                    if rule.resource_names.is_empty() {
                        keep_first(at, &mut slot.any);
                    }
                    for name in &rule.resource_names {
                        let first = slot.named.entry(name.clone()).or_insert(at);
                        *first = at.min(*first);
                    }
                }
            }
        }
        for url in &rule.non_resource_urls {
            let verbs = match url.strip_suffix('*') {
                None => self.paths.entry(url.clone()).or_default(),
                Some(prefix) => {
                    let known = self.prefixes.iter().position(|(p, _)| p == prefix);
                    let i = known.unwrap_or_else(|| {
                        self.prefixes.push((prefix.into(), Level::default()));
                        self.prefixes.len() - 1
                    });
                    &mut self.prefixes[i].1
                }
            };
            for verb in &rule.verbs {
                let first = verbs.entry(verb.clone()).or_insert(at);
                *first = at.min(*first);
            }
        }
    }

    /// The first rule that allows it.
    pub fn find(&self, asked: &Attributes<'_>) -> Option<usize> {
        if !asked.is_resource {
            return self.find_path(asked);
        }
        if self.resources.is_empty() {
            return None;
        }
        let any = self.in_resource("*", asked);
        if asked.subresource.is_empty() {
            return lower(any, self.in_resource(asked.resource, asked));
        }
        let mut spelled = String::with_capacity(asked.resource.len() + asked.subresource.len() + 1);
        spelled.push_str(asked.resource);
        spelled.push('/');
        spelled.push_str(asked.subresource);
        let exact = self.in_resource(&spelled, asked);
        spelled.replace_range(..asked.resource.len(), "*");
        lower(lower(any, exact), self.in_resource(&spelled, asked))
    }

    fn in_resource(&self, resource: &str, asked: &Attributes<'_>) -> Option<usize> {
        let verbs = self.resources.get(resource)?;
        lower(
            verbs.get("*").and_then(|g| in_groups(g, asked)),
            verbs.get(asked.verb).and_then(|g| in_groups(g, asked)),
        )
    }

    fn find_path(&self, asked: &Attributes<'_>) -> Option<usize> {
        let of = |verbs: &Level<usize>| lower(verbs.get("*").copied(), verbs.get(asked.verb).copied());
        let exact = self.paths.get(asked.path).and_then(of);
        self.prefixes
            .iter()
            .filter(|(prefix, _)| asked.path.starts_with(prefix.as_str()))
            .fold(exact, |found, (_, verbs)| lower(found, of(verbs)))
    }
}

fn in_groups(groups: &Level<Slot>, asked: &Attributes<'_>) -> Option<usize> {
    let of = |slot: &Slot| lower(slot.any, slot.named.get(asked.name).copied());
    lower(groups.get("*").and_then(of), groups.get(asked.api_group).and_then(of))
}
