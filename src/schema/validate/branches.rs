//! `anyOf`, `oneOf`, `allOf` and `not`. Nothing in them is ratcheted on its own.

use super::{Outcome, Validator};
use crate::apimachinery::value::Value;
use crate::schema::Node;
use crate::schema::path::At;

/// The outcome with the most matches, the first of equals.
fn better(best: Option<Outcome>, tried: Outcome) -> Option<Outcome> {
    match best {
        // Ties go to the earlier branch.
        Some(best) if tried.matches <= best.matches => Some(best),
        _ => Some(tried),
    }
}

impl Validator<'_> {
    /// The outcome of a branch of `whole`.
    fn branch(&mut self, node: &Node, v: &Value, at: &At<'_>, whole: &Outcome) -> Outcome {
        let mut out = whole.part();
        // Branches see no old value: only the node that has them is ratcheted.
        self.check(node, v, None, at, &mut out);
        out
    }

    /// An error of a junctor, which names the value and has no field.
    fn junctor(&self, at: &At<'_>, what: &str, out: &mut Outcome) {
        out.push_with(|| self.without_field(format!("{:?} must {what}", self.name(at).text.as_str())));
    }

    pub(super) fn branches(&mut self, node: &Node, v: &Value, at: &At<'_>, out: &mut Outcome) {
        // One for the validator, and one because it ran to its end.
        out.matches += 2;
        let Some(c) = node.checks.as_deref() else { return };
        self.any_of(&c.any_of, v, at, out);
        self.one_of(&c.one_of, v, at, out);
        if !c.all_of.is_empty() {
            let mut valid = 0;
            for branch in &c.all_of {
                let tried = self.branch(branch, v, at, out);
                valid += usize::from(tried.is_valid());
                // Errors of all branches are kept, whether or not others are valid.
                self.merge(out, tried);
            }
            if valid == 0 {
                self.junctor(at, "validate all the schemas (allOf). None validated", out);
            } else if valid < c.all_of.len() {
                self.junctor(at, "validate all the schemas (allOf)", out);
            }
        }
        if let Some(not) = &c.not
            // The outcome of `not` is dropped: its errors mean success.
            && self.branch(not, v, at, out).is_valid()
        {
            self.junctor(at, "not validate the schema (not)", out);
        }
    }

    fn any_of(&mut self, branches: &[Node], v: &Value, at: &At<'_>, out: &mut Outcome) {
        let mut best = None;
        for branch in branches {
            let tried = self.branch(branch, v, at, out);
            if tried.is_valid() {
                // The first valid branch decides; what earlier ones reported is dropped.
                return self.merge(out, tried);
            }
            best = better(best, tried);
        }
        if let Some(best) = best {
            self.junctor(at, "validate at least one schema (anyOf)", out);
            self.merge(out, best);
        }
    }

    fn one_of(&mut self, branches: &[Node], v: &Value, at: &At<'_>, out: &mut Outcome) {
        let (mut best, mut valid, mut count) = (None, None, 0);
        for branch in branches {
            let tried = self.branch(branch, v, at, out);
            if tried.is_valid() {
                count += 1;
                valid.get_or_insert(tried);
            } else if count == 0 {
                // Once a branch is valid, errors of others do not matter.
                best = better(best, tried);
            }
        }
        match (count, valid) {
            (1, Some(valid)) => self.merge(out, valid),
            (0, _) if branches.is_empty() => {}
            (0, _) => {
                self.junctor(at, "validate one and only one schema (oneOf). Found none valid", out);
                self.merge(out, best.unwrap_or_default());
            }
            // Several valid branches give one error, without theirs.
            (n, _) => {
                let what = format!("validate one and only one schema (oneOf). Found {n} valid alternatives");
                self.junctor(at, &what, out);
            }
        }
    }
}
