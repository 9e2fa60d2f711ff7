//! The rules of a definition: whether they compile, may read the old value, and what they cost at most
//! (upstream's `ValidateCustomResourceDefinitionOpenAPISchema`). The entry point is [`check`].

use super::declare::declare;
use super::programs::Compiled;
use super::{Rule, Ruleset};
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::interrupt::checkpoint;
use crate::schema::path::At;
use crate::schema::{Additional, ListKind, Node, Type};

/// Maximum estimated cost of a rule over all its places in an object.
const PER_EXPRESSION: u64 = 10_000_000;
/// Maximum estimated cost of all rules of a schema together.
const PER_SCHEMA: u64 = 100_000_000;
/// Number of rules that an error about the total cost names.
const NAMED: usize = 4;

/// The errors of the rules in a schema at `path`, whose programs are [prepared](super::programs::prepare).
/// Rules of a schema that has one of `errors`, at any depth, are not checked. `each` is true if the limit for
/// each rule is enforced.
pub(in crate::schema) fn check(root: &Node, path: &FieldPath, errors: &ErrorList, each: bool) -> ErrorList {
    let mut checker = Checker {
        base: path,
        // Prefixes are compared with all of them: there are at most a hundred.
        wrong: errors.iter().map(|e| e.field.as_str()).collect(),
        each,
        total: 0,
        expensive: Vec::new(),
        out: ErrorList::new(),
    };
    // The root exists once.
    checker.node(root, &At::ROOT, Some(1), None);
    let Checker {
        total,
        expensive,
        mut out,
        ..
    } = checker;
    if total > PER_SCHEMA {
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        out.extend(expensive.iter().map(|(_, at)| FieldError::forbidden(at, why)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        out.push(FieldError::forbidden(path, excess(what, total, PER_SCHEMA)));
    }
    out
}

struct Checker<'c> {
    base: &'c FieldPath,
    /// The fields of the errors that the schema has.
    wrong: Vec<&'c str>,
    each: bool,
    total: u64,
    /// The most expensive rules, and where they are.
    expensive: Vec<(u64, FieldPath)>,
    out: ErrorList,
}

impl Checker<'_> {
    /// `count` is the maximum number of values of the schema in an object, if the schemas around it bound it. `list`
    /// is the outermost list around it whose items cannot be correlated.
    fn node(&mut self, node: &Node, at: &At<'_>, count: Option<u64>, list: Option<&FieldPath>) {
        if !node.has_rules {
            return;
        }
        checkpoint();
        // Unknown multiplicities stay unknown further down.
        let below = count.zip(multiplicity(node)).map(|(a, b)| a.saturating_mul(b));
        let properties_at = at.name("properties");
        for (name, property) in &node.properties {
            self.node(property, &properties_at.key(name), below, list);
        }
        if let Additional::Schema(of) = &node.additional {
            self.node(of, &at.name("additionalProperties"), below, list);
        }
        if let Some(of) = &node.items {
            let own = at.below(self.base);
            let list = match node.list {
                // Items of keyed lists can be correlated; items of others cannot, and neither can anything below
                // them.
                ListKind::Map(_) => list,
                ListKind::Atomic | ListKind::Set => list.or(Some(&own)),
            };
            self.node(of, &at.name("items"), below, list);
        }
        // After the parts, as upstream walks depth first.
        if let Some(rules) = &node.rules {
            self.rules(node, rules, at, count, list);
        }
    }

    fn rules(&mut self, node: &Node, rules: &Ruleset, at: &At<'_>, count: Option<u64>, list: Option<&FieldPath>) {
        let own = at.below(self.base);
        let is_below = |field: &str| {
            let rest = field.strip_prefix(own.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        // If the list of rules is full, further ones cannot be attributed.
        if self.wrong.iter().any(|field| field.is_empty() || is_below(field)) {
            return;
        }
        let path = own.child("x-kubernetes-validations");
        // `prepare` has compiled all programs of the schema before.
        let programs = rules.programs.get().expect("the programs of the schema are prepared");
        let Some(programs) = programs else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            return self.out.push(FieldError::internal(&path, why));
        };
        // Without a limit around it, as many as fit into a request.
        // Only computed for the outermost unbounded value, since declaring walks the schema.
        let most = || declare(node, at.is_root() || node.embedded).map_or(1, |d| d.max_count());
        let count = count.unwrap_or_else(most);
        for (i, (rule, compiled)) in rules.list.iter().zip(&programs.list).enumerate() {
            self.rule(rule, compiled, &path.index(i), count, list);
        }
    }

    fn rule(&mut self, rule: &Rule, compiled: &Compiled, at: &FieldPath, count: u64, list: Option<&FieldPath>) {
        checkpoint();
        let rule_at = at.child("rule");
        match &compiled.rule {
            Ok(program) => {
                let cost = program.estimated_cost().saturating_mul(count);
                self.observe("estimated rule cost", cost, &rule_at);
            }
            Err(why) => {
                let error = FieldError::invalid_raw(&rule_at, rule.print(), why.to_string());
                self.out.push(error);
            }
        }
        let message_at = at.child("messageExpression");
        match &compiled.message {
            Some(Ok(program)) => {
                self.observe(
                    "estimated messageExpression cost",
                    // The cost of a message counts once, not for each value: it is only evaluated on failure.
                    program.estimated_cost(),
                    &message_at,
                );
            }
            Some(Err(why)) => {
                let error = FieldError::invalid_raw(&message_at, rule.print(), why.to_string());
                self.out.push(error);
            }
            None => {}
        }
        // A transition rule needs to know which old value belongs to a new one.
        if let Some(list) = list.filter(|_| compiled.reads_old) {
            let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            self.out.push(FieldError::invalid(&rule_at, rule.rule.as_str(), why));
        }
        if let Some(optional) = rule.optional_old_self.filter(|_| !compiled.reads_old) {
            let why = "may not be set if oldSelf is not used in rule";
            let at = at.child("optionalOldSelf");
            self.out.push(FieldError::invalid(&at, optional, why));
        }
    }

    fn observe(&mut self, what: &str, cost: u64, at: &FieldPath) {
        if self.each && cost > PER_EXPRESSION {
            self.out
                .push_with(|| FieldError::forbidden(at, excess(what, cost, PER_EXPRESSION)));
        }
        // Counted even beyond the limit of one rule, as upstream does.
        self.total = self.total.saturating_add(cost);
        // Cheap rules are never named, so their paths are not kept.
        if cost >= PER_SCHEMA / 100 {
            // Descending by cost; among equal ones the first stays in front.
            let place = self.expensive.partition_point(|(c, _)| *c >= cost);
            self.expensive.insert(place, (cost, at.clone()));
            self.expensive.truncate(NAMED);
        }
    }
}

/// Maximum number of elements of a value; `None` without a limit.
fn multiplicity(node: &Node) -> Option<u64> {
    let checks = node.checks.as_deref();
    match (node.ty, &node.additional) {
        (Some(Type::Array), _) => checks.and_then(|c| c.max_items).map(|n| n as u64),
        (Some(Type::Object), Additional::Any(_) | Additional::Schema(_)) => {
            checks.and_then(|c| c.max_properties).map(|n| n as u64)
        }
        _ => Some(1),
    }
}

fn excess(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        // Upstream prints more digits just above the limit, where 1.0x would say nothing.
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
