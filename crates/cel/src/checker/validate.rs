//! Validation of well-typed expressions: the values of a list or map literal must have one type, and constant
//! durations, timestamps, regular expressions and templates must be valid.

use super::Checked;
use crate::ast::{Expr, ExprKind, Literal};
use crate::library;
use crate::time_value::{Stamp, parse_duration};

pub(super) fn literals(root: &Expr, checked: &Checked) -> Vec<(u32, String)> {
    let mut validator = Validator {
        checked,
        errors: Vec::new(),
    };
    validator.expr(root, false);
    validator.errors
}

struct Validator<'c> {
    checked: &'c Checked,
    errors: Vec<(u32, String)>,
}

impl Validator<'_> {
    /// `formatted` is true inside of a call of `format`, whose values may be of any types.
    fn expr(&mut self, e: &Expr, formatted: bool) {
        // Inherited by everything below `format`, which is how cel-go skips the homogeneity check there.
        let mut inside = formatted;
        match &e.kind {
            ExprKind::List(elements) if !formatted => {
                // cel-go reports only the first error of a list.
                self.same(elements.iter().map(|el| (&el.value, el.optional)), 1);
            }
            ExprKind::Map(entries) if !formatted => {
                self.same(entries.iter().map(|en| (&en.key, false)), usize::MAX);
                self.same(entries.iter().map(|en| (&en.value, en.optional)), usize::MAX);
            }
            ExprKind::Call(call) => {
                if &*call.function == "format" {
                    inside = true;
                    self.errors
                        .extend(super::format::error(e.at, call, &self.checked.types));
                }
                if let Some(first) = call.args.first() {
                    self.constant(&call.function, first);
                }
            }
            _ => {}
        }
        e.children(&mut |child| self.expr(child, inside));
    }

    fn same<'e>(&mut self, values: impl Iterator<Item = (&'e Expr, bool)>, limit: usize) {
        let (mut first, mut found) = (None, 0);
        for (value, optional) in values {
            // An optional element contributes the type inside of its optional.
            let ty = match &self.checked.types[value.id] {
                crate::Type::Optional(of) if optional => of,
                ty => ty,
            };
            match first {
                None => first = Some(ty),
                Some(first) if first != ty => {
                    self.errors
                        .push((value.at, format!("expected type '{first}' but found '{ty}'")));
                    found += 1;
                    if found == limit {
                        return;
                    }
                }
                Some(_) => {}
            }
        }
    }

    fn constant(&mut self, function: &str, arg: &Expr) {
        let valid = match (&arg.kind, function) {
            (ExprKind::Literal(Literal::String(s)), "duration") => parse_duration(s).is_some(),
            (ExprKind::Literal(Literal::String(s)), "timestamp") => Stamp::parse(s).is_some(),
            (ExprKind::Literal(Literal::Int(n)), "timestamp") => Stamp::new(*n, 0).is_some(),
            // For the global function this is the text, not the pattern; cel-go validates it nevertheless.
            (ExprKind::Literal(Literal::String(s)), "matches") => library::regex::Pattern::new(s).is_ok(),
            _ => true,
        };
        if !valid {
            self.errors.push((arg.at, format!("invalid {function} argument")));
        }
    }
}
