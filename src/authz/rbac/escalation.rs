//! Privilege escalation check: which of the rules that a user wants to grant the user does not hold. Computes
//! upstream's `validation.Covers` and `CompactRules`
//! (`staging/src/k8s.io/component-helpers/auth/rbac/validation`) without expanding rules into single grants.
//!
//! A rule of 100 groups, 100 resources and 100 verbs stands for a million grants. Here, the values of each
//! list are grouped into classes named by the same held rules, and only classes are combined. Where one held
//! rule covers everything that is left, nothing is combined. The walk has a step budget, and the result a
//! maximum size. Entry point: [`HeldRules::missing`].

use super::postings::{BudgetExhausted, StepBudget, Union, Word, common, intersection};
use super::rule::PolicyRule;
use super::table::Table;
use crate::apimachinery::value::Str;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Step budget of a comparison, about 200 ms.
const BUDGET: u64 = 50_000_000;
/// Maximum number of missing rules to collect; the search ends there.
const MAX_RULES: usize = 200;
/// Maximum number of verbs over all missing rules.
const MAX_VERBS: usize = 10_000;
/// A list with one element, for rules that apply to every name.
static NO_NAME: &[Str] = &[Str::const_new("")];

/// The rules not held: one for each group, resource and name with the missing verbs, and one for each path
/// and verb.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingRules {
    /// In the order found.
    pub rules: Vec<PolicyRule>,
    /// True if the search ended early, so that there may be more.
    pub more: bool,
}

/// The rules a user holds, indexed for comparison.
pub(crate) struct HeldRules(Table);

/// Expands a rule into single grants: one verb on one resource or path.
pub(crate) fn expand(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut out = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let one = PolicyRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    out.push(one);
                    continue;
                }
                out.extend(rule.resource_names.iter().map(|name| PolicyRule {
                    resource_names: vec![name.clone()],
                    ..one.clone()
                }));
            }
        }
    }
    for url in &rule.non_resource_urls {
        out.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        }));
    }
    out
}

/// Values named by the same set of held rules.
struct Class<'w, 'h> {
    held: Union<'h>,
    /// The values, and how often the rule lists each.
    values: Vec<(&'w Str, usize)>,
}

/// One list of a rule, partitioned into classes.
struct Dimension<'w, 'h> {
    classes: Vec<Class<'w, 'h>>,
    /// The list in its original order: each element with its class.
    order: Vec<(&'w Str, usize)>,
    /// Held rules that contain every value of the list.
    full: Vec<Word>,
}

impl<'w, 'h> Dimension<'w, 'h> {
    fn of(
        list: &'w [Str],
        held: impl Fn(&'w Str) -> Union<'h>,
        steps: &mut StepBudget,
    ) -> Result<Self, BudgetExhausted> {
        let mut classes: Vec<Class<'w, 'h>> = Vec::new();
        // Index of each distinct value: its class, and its position in that class.
        let mut places: HashMap<&Str, (usize, usize)> = HashMap::new();
        let mut known = HashMap::new();
        let mut order = Vec::new();
        let mut full: Option<Vec<Word>> = None;
        for value in list {
            steps.charge(1)?;
            if let Some(&(class, place)) = places.get(value) {
                classes[class].values[place].1 += 1;
                order.push((value, class));
                continue;
            }
            let union = held(value);
            let class = match known.entry(union.own()) {
                Entry::Occupied(class) => *class.get(),
                Entry::Vacant(class) => {
                    // `full` is the intersection over the classes; values of a class add nothing, as they
                    // share its set.
                    full = Some(match full {
                        None => union.collect(steps)?,
                        Some(before) => intersection([set(&before), union], steps)?,
                    });
                    classes.push(Class {
                        held: union,
                        values: Vec::new(),
                    });
                    *class.insert(classes.len() - 1)
                }
            };
            places.insert(value, (class, classes[class].values.len()));
            classes[class].values.push((value, 1));
            order.push((value, class));
        }
        Ok(Self {
            classes,
            order,
            full: full.unwrap_or_default(),
        })
    }
}

fn set(words: &[Word]) -> Union<'_> {
    Union::of([Some(words), None, None])
}

fn any<const N: usize>(unions: [Union<'_>; N], steps: &mut StepBudget) -> Result<bool, BudgetExhausted> {
    let mut found = false;
    common(unions, steps, |_| {
        found = true;
        true
    })?;
    Ok(found)
}

impl HeldRules {
    /// Indexes the rules a user holds.
    pub(crate) fn of<'r>(rules: impl Iterator<Item = &'r PolicyRule>) -> Self {
        Self(Table::of(rules.enumerate()))
    }

    /// The single grants of `wanted` that are not held, in order. Expands rules, so only for rules of our own
    /// making.
    pub(crate) fn missing_grants(&self, wanted: &[PolicyRule]) -> Vec<PolicyRule> {
        let not_held = |grant: &PolicyRule| match self.missing(std::slice::from_ref(grant)) {
            Ok(missing) => !missing.rules.is_empty(),
            // A grant that could not be compared counts as missing: this check must fail closed.
            Err(BudgetExhausted) => true,
        };
        wanted.iter().flat_map(expand).filter(not_held).collect()
    }

    /// The part of `wanted` that is not held.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the rules are too complex to compare.
    pub(crate) fn missing(&self, wanted: &[PolicyRule]) -> Result<MissingRules, BudgetExhausted> {
        self.missing_within(wanted, &mut StepBudget::new(BUDGET))
    }

    fn missing_within(&self, wanted: &[PolicyRule], steps: &mut StepBudget) -> Result<MissingRules, BudgetExhausted> {
        let mut found = Collector::default();
        for rule in wanted {
            // Upstream reports all missing rules; a message with more than a few hundred is of no use, and
            // collecting them could take gigabytes.
            let open = self.resources(rule, &mut found, steps)? && self.paths(rule, &mut found, steps)?;
            if !open {
                break;
            }
        }
        Ok(found.found)
    }

    /// Collects missing resource grants. Returns false once the collector is full.
    fn resources<'w>(
        &self,
        rule: &'w PolicyRule,
        found: &mut Collector<'w>,
        steps: &mut StepBudget,
    ) -> Result<bool, BudgetExhausted> {
        // A product with an empty factor grants nothing, so nothing can be missing.
        if rule.api_groups.is_empty() || rule.resources.is_empty() || rule.verbs.is_empty() {
            return Ok(true);
        }
        let held = &self.0;
        let groups = Dimension::of(&rule.api_groups, |g| held.groups(g), steps)?;
        let resource = |r: &'w Str| held.resource(r, r.split_once('/').map(|(_, sub)| sub));
        let resources = Dimension::of(&rule.resources, resource, steps)?;
        let verbs = Dimension::of(&rule.verbs, |v| held.verbs(v), steps)?;
        let named = !rule.resource_names.is_empty();
        let names = if named {
            Dimension::of(&rule.resource_names, |n| held.names(Some(n)), steps)?
        } else {
            // One class that stands for the absence of names: only held rules without names cover it.
            Dimension::of(NO_NAME, |_| held.names(None), steps)?
        };
        let (all_resources, all_verbs, all_names) = (set(&resources.full), set(&verbs.full), set(&names.full));
        // From the coarsest test to the finest: one held rule that covers everything ends the comparison
        // here, which is the common case of an administrator.
        if any([set(&groups.full), all_resources, all_verbs, all_names], steps)? {
            return Ok(true);
        }
        for group in &groups.classes {
            if any([group.held, all_resources, all_verbs, all_names], steps)? {
                continue;
            }
            for resource in &resources.classes {
                let here = intersection([group.held, resource.held], steps)?;
                if any([set(&here), all_verbs, all_names], steps)? {
                    continue;
                }
                for name in &names.classes {
                    let here = intersection([set(&here), name.held], steps)?;
                    if any([set(&here), all_verbs], steps)? {
                        continue;
                    }
                    // Per class, not per verb: the verbs of a class are lacking together.
                    let mut lacking = vec![false; verbs.classes.len()];
                    for (verb, lacks) in verbs.classes.iter().zip(&mut lacking) {
                        *lacks = !any([set(&here), verb.held], steps)?;
                    }
                    if !lacking.contains(&true) {
                        continue;
                    }
                    let lacks = |(verb, class): &(&'w Str, usize)| lacking[*class].then_some(*verb);
                    let cell = Cell {
                        groups: &group.values,
                        resources: &resource.values,
                        names: if named { &name.values } else { &[] },
                        verbs: verbs.order.iter().filter_map(lacks).collect(),
                    };
                    if !found.add(&cell) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Collects missing path grants. Returns false once the collector is full.
    fn paths(
        &self,
        rule: &PolicyRule,
        found: &mut Collector<'_>,
        steps: &mut StepBudget,
    ) -> Result<bool, BudgetExhausted> {
        if rule.non_resource_urls.is_empty() || rule.verbs.is_empty() {
            return Ok(true);
        }
        let held = &self.0;
        let verbs = Dimension::of(&rule.verbs, |v| held.verbs(v), steps)?;
        for url in &rule.non_resource_urls {
            // Several held rules may each contribute some verbs: a prefix rule one, an exact one another.
            let mut lacking = vec![true; verbs.classes.len()];
            for rules in held.paths_of(url) {
                // Rules that are restricted to names never cover a path.
                let here = intersection([set(rules), held.names(None)], steps)?;
                if any([set(&here), set(&verbs.full)], steps)? {
                    lacking.fill(false);
                    break;
                }
                for (verb, lacks) in verbs.classes.iter().zip(&mut lacking) {
                    *lacks = *lacks && !any([set(&here), verb.held], steps)?;
                }
            }
            for (verb, _) in verbs.order.iter().filter(|(_, class)| lacking[*class]) {
                if !found.path(url, verb) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Missing verbs on every combination of these groups, resources and names.
struct Cell<'c, 'w> {
    groups: &'c [(&'w Str, usize)],
    resources: &'c [(&'w Str, usize)],
    /// Empty if the rule is not restricted to names.
    names: &'c [(&'w Str, usize)],
    verbs: Vec<&'w Str>,
}

/// Collects missing rules. Those that differ only in verbs are merged, as by upstream's `CompactRules`.
#[derive(Default)]
struct Collector<'w> {
    known: HashMap<(&'w Str, &'w Str, Option<&'w Str>), usize>,
    found: MissingRules,
    verbs: usize,
}

impl<'w> Collector<'w> {
    /// Adds a cell. Returns false once the collector is full.
    fn add(&mut self, cell: &Cell<'_, 'w>) -> bool {
        for (group, times) in cell.groups {
            // Repeated values are reported as often as the rule lists them: upstream expands the rule the
            // same way.
            for group in std::iter::repeat_n(*group, *times) {
                for (resource, times) in cell.resources {
                    for resource in std::iter::repeat_n(*resource, *times) {
                        let open = if cell.names.is_empty() {
                            self.rule((group, resource, None), &cell.verbs, 1)
                        } else {
                            let mut names = cell.names.iter();
                            names.all(|(name, times)| self.rule((group, resource, Some(name)), &cell.verbs, *times))
                        };
                        if !open {
                            return false;
                        }
                    }
                }
            }
        }
        true
    }

    fn rule(&mut self, key: (&'w Str, &'w Str, Option<&'w Str>), verbs: &[&'w Str], times: usize) -> bool {
        // Before anything is copied: `times` comes from the request, which can repeat a value very often.
        self.verbs += verbs.len() * times;
        let new = !self.known.contains_key(&key);
        if self.verbs > MAX_VERBS || (new && self.found.rules.len() >= MAX_RULES) {
            self.found.more = true;
            return false;
        }
        let rules = &mut self.found.rules;
        let at = *self.known.entry(key).or_insert_with(|| {
            let (group, resource, name) = key;
            rules.push(PolicyRule {
                api_groups: vec![group.clone()],
                resources: vec![resource.clone()],
                resource_names: name.into_iter().cloned().collect(),
                ..PolicyRule::default()
            });
            rules.len() - 1
        });
        let verbs = verbs
            .iter()
            .flat_map(|verb| std::iter::repeat_n((*verb).clone(), times));
        rules[at].verbs.extend(verbs);
        true
    }

    /// Adds a missing verb on a path. Returns false once the collector is full.
    fn path(&mut self, url: &Str, verb: &Str) -> bool {
        if self.found.rules.len() >= MAX_RULES {
            self.found.more = true;
            return false;
        }
        self.found.rules.push(PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        });
        true
    }
}

#[cfg(test)]
mod tests;
