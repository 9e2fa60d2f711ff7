//! Plans loops and map literals: gives the variables of a loop their slots, recognizes loops that append to a list
//! (which then need no copy per step), and makes maps of constants once.

use super::{Fold, Node, PlanError, Planner};
use crate::ast::{Call, ExprKind, Fold as FoldExpr, op};
use crate::library::{self, Callee};
use crate::parser::macros::{RESULT, TARGET, is_bind};
use crate::value::Val;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Planner<'_> {
    pub(super) fn fold(&mut self, fold: &FoldExpr) -> Result<Node, PlanError> {
        if is_bind(fold) {
            return self.bind(fold);
        }
        // Range and initial value are planned outside of the loop's scope.
        let range = self.expr(&fold.range)?;
        let init = self.expr(&fold.init)?;
        let accumulator = self.slot(&fold.accumulator);
        let var = self.slot(&fold.var);
        let var2 = fold.var2.as_ref().map(|name| self.slot(name));
        let condition = self.expr(&fold.condition)?;
        let step = self.expr(&fold.step)?;
        self.scopes.truncate(accumulator + 1);
        let result = self.expr(&fold.result)?;
        self.scopes.truncate(accumulator);
        Ok(Node::Fold(Box::new(Fold {
            range,
            init,
            condition,
            step,
            result,
            accumulator,
            var,
            var2,
        })))
    }

    fn bind(&mut self, fold: &FoldExpr) -> Result<Node, PlanError> {
        // The value is evaluated in the middle of the result, and so needs slots that the result leaves
        // alone.
        let before = self.slots;
        self.slots = 0;
        let slot = self.slot(&fold.accumulator);
        let result = self.expr(&fold.result);
        self.scopes.pop();
        let used = self.slots;
        // Placeholders occupy the slots that the result uses; their name is empty and never found.
        self.scopes.resize(used, "".into());
        let value = self.expr(&fold.init);
        self.scopes.truncate(slot);
        self.slots = self.slots.max(before);
        // Both results are unwrapped only now, so that the scopes are restored on an error, too.
        let (value, result) = (Box::new(value?), Box::new(result?));
        Ok(match &*fold.accumulator == TARGET {
            true => Node::Twice { slot, value, result },
            false => Node::Bind { slot, value, result },
        })
    }

    /// `@result + [element]`, which appends in place.
    pub(super) fn append(&mut self, callee: &Callee, call: &Call) -> Result<Option<Node>, PlanError> {
        let [accumulator, list] = call.args.as_slice() else {
            return Ok(None);
        };
        let (ExprKind::Ident(name), ExprKind::List(elements)) = (&accumulator.kind, &list.kind) else {
            return Ok(None);
        };
        let (op::ADD, RESULT, [element]) = (callee.function.name, &**name, elements.as_slice()) else {
            return Ok(None);
        };
        // An optional element may add nothing.
        if element.optional {
            return Ok(None);
        }
        // Cannot be missing: the checker has resolved the accumulator.
        let slot = self.scopes.iter().rposition(|n| n == name);
        let element = self.expr(&element.value)?;
        // The accumulator, the addition, and the list of one element unless it is constant.
        let charge = if element.as_const().is_some() { 2 } else { 12 };
        Ok(slot.map(|slot| Node::Append {
            slot,
            element: Box::new(element),
            charge,
        }))
    }
}

/// A map, folded if it is constant. The last of several equal keys wins.
pub(super) fn map(nodes: Vec<(Node, Node, bool)>) -> Node {
    let mut out: BTreeMap<_, Val<'static>> = BTreeMap::new();
    for (key, value, optional) in &nodes {
        // Any entry that is not constant leaves the whole map to the evaluation.
        let (Some(k), Some(v), false) = (key.as_const(), value.as_const(), optional) else {
            return Node::Map(nodes.into());
        };
        match library::key(k) {
            Ok(k) => drop(out.insert(k, v.clone())),
            // A key of a wrong type is an error at run time, not of the program.
            Err(_) => return Node::Map(nodes.into()),
        }
    }
    Node::Const(Val::Map(crate::value::Dict::Shared(Arc::new(out))))
}
