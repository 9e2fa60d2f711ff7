//! The variables of a policy: named expressions, each of which may read those before it.

use super::environment::Expression;
use std::collections::{HashMap, HashSet};

/// Values are computed by recursion up to this depth, and in order beyond it.
const MAX_RECURSION: u32 = 50;

/// The variables of a policy, in the order of their declaration.
#[derive(Default)]
pub(crate) struct Variables {
    all: Vec<Variable>,
    /// By `variables.<name>`. Of several with one name, the first counts.
    places: HashMap<String, usize>,
}

pub(crate) struct Variable {
    /// Without `variables.`.
    pub name: String,
    pub expression: Expression,
    /// The places of the variables that it reads.
    reads: Vec<usize>,
    /// How many variables lead to it: the length of the longest chain in which each reads the next.
    depth: u32,
}

impl Variables {
    pub(crate) fn push(&mut self, name: &str, expression: Expression) {
        let mut reads = Vec::new();
        if let Ok(program) = expression.program.as_ref() {
            reads.extend(program.variables().filter_map(|v| self.places.get(v).copied()));
        }
        // Places are smaller than the new one: a variable can only read earlier ones, so there are no cycles.
        let depth = reads.iter().map(|&p| self.all[p].depth + 1).max().unwrap_or(0);
        self.places.entry(format!("variables.{name}")).or_insert(self.all.len());
        self.all.push(Variable {
            name: name.to_owned(),
            expression,
            reads,
            depth,
        });
    }

    /// The place of the variable with this dotted name.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The variables, by their places.
    pub(crate) fn all(&self) -> &[Variable] {
        &self.all
    }

    /// The variables to compute before the one at `place`, in order of their dependencies; those that
    /// `is_known` and their dependencies are left out. Empty unless the chain is so long that recursion would
    /// need much stack, because this costs budget: it computes every variable that occurs in an expression, also
    /// those in branches that are not evaluated.
    pub(crate) fn before(&self, place: usize, is_known: impl Fn(usize) -> bool) -> Vec<usize> {
        if self.all[place].depth <= MAX_RECURSION {
            return Vec::new();
        }
        let (mut order, mut seen) = (Vec::new(), HashSet::new());
        // A depth-first walk with a stack of its own, because recursion is what this avoids.
        let mut path = vec![(place, 0)];
        while let Some((at, next)) = path.last_mut() {
            let Some(&read) = self.all[*at].reads.get(*next) else {
                order.extend(path.pop().map(|(at, _)| at));
                continue;
            };
            *next += 1;
            if !is_known(read) && seen.insert(read) {
                path.push((read, 0));
            }
        }
        // The last is the variable itself.
        order.pop();
        order
    }
}
