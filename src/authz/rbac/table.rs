//! An index over rules by their tokens, so that a decision does not read every rule.
//!
//! A rule is the product verbs × groups × resources × names, but its index entries are only the sum of its
//! lists. Each token maps to the set of rules that contain it; a decision intersects the sets of the
//! request's tokens, 64 rules at a time.

use super::postings::{BudgetExhausted, Postings, StepBudget, Union, Word, first};
use super::rule::PolicyRule;
use crate::apimachinery::value::Str;
use crate::authz::Attributes;
use std::collections::HashMap;

/// Token → rules that contain it.
type Tokens = HashMap<Str, Postings>;

/// An index over rules. Positions are assigned by the caller.
#[derive(Default)]
pub(super) struct Table {
    /// The position of each rule by its number. Positions increase with numbers.
    positions: Vec<u32>,
    verbs: Tokens,
    groups: Tokens,
    resources: Tokens,
    names: Tokens,
    /// Rules without resource names.
    unnamed: Option<Postings>,
    paths: Tokens,
    prefixes: Vec<Prefix>,
}

/// A path prefix (written with a trailing `*`). The list is sorted.
struct Prefix {
    text: Str,
    /// Index of the longest other prefix that is a prefix of this one.
    parent: Option<usize>,
    rules: Postings,
}

fn note(tokens: &mut Tokens, token: &Str, number: u32) {
    match tokens.get_mut(token) {
        Some(rules) => rules.push(number),
        None => drop(tokens.insert(token.clone(), Postings::of(number))),
    }
}

fn rules_of<'a>(tokens: &'a Tokens, token: &str) -> Option<&'a [Word]> {
    tokens.get(token).map(Postings::words)
}

impl Table {
    /// Builds an index. Positions must not decrease.
    pub(crate) fn of<'r>(rules: impl Iterator<Item = (usize, &'r PolicyRule)>) -> Self {
        let mut me = Self::default();
        let mut prefixes = Tokens::default();
        for (position, rule) in rules {
            // Fits: four billion rules would exhaust memory long before.
            let number = me.positions.len() as u32;
            me.positions.push(position as u32);
            for (tokens, list) in [
                (&mut me.verbs, &rule.verbs),
                (&mut me.groups, &rule.api_groups),
                (&mut me.resources, &rule.resources),
                (&mut me.names, &rule.resource_names),
            ] {
                list.iter().for_each(|token| note(tokens, token, number));
            }
            if rule.resource_names.is_empty() {
                match &mut me.unnamed {
                    Some(rules) => rules.push(number),
                    none => *none = Some(Postings::of(number)),
                }
            }
            for url in &rule.non_resource_urls {
                // Also with its star: upstream compares the literal URL first, and a request path may contain
                // one.
                note(&mut me.paths, url, number);
                if url.ends_with('*') {
                    note(&mut prefixes, &Str::from(url.trim_end_matches('*')), number);
                }
            }
        }
        me.prefixes = nested(prefixes);
        me
    }

    /// The position of the first rule that allows the request.
    pub(crate) fn find(
        &self,
        attributes: &Attributes<'_>,
        steps: &mut StepBudget,
    ) -> Result<Option<usize>, BudgetExhausted> {
        let number = if attributes.is_resource {
            self.find_resource(attributes, steps)?
        } else {
            self.find_path(attributes, steps)?
        };
        Ok(number.map(|n| self.positions[n as usize] as usize))
    }

    fn find_resource(
        &self,
        attributes: &Attributes<'_>,
        steps: &mut StepBudget,
    ) -> Result<Option<u32>, BudgetExhausted> {
        let resources = if attributes.subresource.is_empty() {
            self.resource(attributes.resource, None)
        } else {
            let mut spelled = String::with_capacity(attributes.resource.len() + attributes.subresource.len() + 1);
            spelled.push_str(attributes.resource);
            spelled.push('/');
            spelled.push_str(attributes.subresource);
            self.resource(&spelled, Some(attributes.subresource))
        };
        // Most rules are about other resources, so this saves the other lookups and the walk.
        if resources.is_empty() {
            return Ok(None);
        }
        let names = self.names(Some(attributes.name));
        first(
            [
                resources,
                self.verbs(attributes.verb),
                self.groups(attributes.api_group),
                names,
            ],
            steps,
        )
    }

    fn find_path(&self, attributes: &Attributes<'_>, steps: &mut StepBudget) -> Result<Option<u32>, BudgetExhausted> {
        let verbs = self.verbs(attributes.verb);
        let mut found: Option<u32> = None;
        for rules in self.paths_of(attributes.path) {
            steps.charge(2)?;
            if let Some(n) = first([Union::of([Some(rules), None, None]), verbs], steps)? {
                // The lowest number is the first rule in the role, which is the one upstream would find.
                found = Some(found.map_or(n, |low| low.min(n)));
            }
        }
        Ok(found)
    }

    /// Rules that include a verb.
    pub(crate) fn verbs(&self, verb: &str) -> Union<'_> {
        Union::of([rules_of(&self.verbs, "*"), rules_of(&self.verbs, verb), None])
    }

    /// Rules that include an API group.
    pub(crate) fn groups(&self, group: &str) -> Union<'_> {
        Union::of([rules_of(&self.groups, "*"), rules_of(&self.groups, group), None])
    }

    /// Rules that include a resource as spelled in rules (`pods/log`), or its subresource of any resource
    /// (`*/log`).
    pub(crate) fn resource(&self, spelled: &str, subresource: Option<&str>) -> Union<'_> {
        let in_all = subresource.and_then(|sub| {
            let mut spelled = String::with_capacity(sub.len() + 2);
            spelled.push_str("*/");
            spelled.push_str(sub);
            rules_of(&self.resources, &spelled)
        });
        Union::of([
            rules_of(&self.resources, "*"),
            rules_of(&self.resources, spelled),
            in_all,
        ])
    }

    /// Rules that apply to a name; `None`: to every name.
    pub(crate) fn names(&self, name: Option<&str>) -> Union<'_> {
        let unnamed = self.unnamed.as_ref().map(Postings::words);
        Union::of([unnamed, name.and_then(|n| rules_of(&self.names, n)), None])
    }

    /// Rules that include a path, exactly or by prefix.
    pub(crate) fn paths_of<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a [Word]> {
        let before = self.prefixes.partition_point(|p| p.text.as_str() <= path);
        let mut at = before.checked_sub(1);
        let shared = at.map_or(0, |i| {
            let pairs = self.prefixes[i].text.bytes().zip(path.bytes());
            pairs.take_while(|(a, b)| a == b).count()
        });
        // Among the sorted prefixes, only the last one before the path and its ancestors can be prefixes of
        // it.
        while let Some(i) = at
            && self.prefixes[i].text.len() > shared
        {
            at = self.prefixes[i].parent;
        }
        let chain = std::iter::successors(at, |i| self.prefixes[*i].parent);
        rules_of(&self.paths, path)
            .into_iter()
            .chain(chain.map(|i| self.prefixes[i].rules.words()))
    }
}

/// Sorts prefixes and links each to the longest one that it extends.
fn nested(prefixes: Tokens) -> Vec<Prefix> {
    let mut sorted: Vec<Prefix> = prefixes
        .into_iter()
        .map(|(text, rules)| Prefix {
            text,
            parent: None,
            rules,
        })
        .collect();
    sorted.sort_by(|a, b| a.text.cmp(&b.text));
    // A stack of nested prefixes: in sorted order, the extensions of a prefix follow it directly.
    let mut open: Vec<usize> = Vec::new();
    for i in 0..sorted.len() {
        while let Some(last) = open.last()
            && !sorted[i].text.starts_with(sorted[*last].text.as_str())
        {
            open.pop();
        }
        sorted[i].parent = open.last().copied();
        open.push(i);
    }
    sorted
}
