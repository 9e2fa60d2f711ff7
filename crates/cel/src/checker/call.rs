//! Checks calls: finds the function of a name (global, member or with a namespace, in cel-go's order), keeps the
//! overloads that the types of the arguments allow, and derives the type of the result. Which functions exist is left
//! to `library`.

use super::{Checker, Reference, qualified};
use crate::ast::{Call, Expr, ExprKind, Literal, op};
use crate::library::{self, Callee, Function};
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn call(&mut self, e: &Expr, call: &Call) -> Type {
        if &*call.function == op::OPT_SELECT {
            let operand = self.expr(&call.args[0]);
            // Checked for its type in the node table: the planner expects one for every node.
            self.expr(&call.args[1]);
            let ExprKind::Literal(Literal::String(field)) = &call.args[1].kind else {
                return Type::Error;
            };
            return self.field(e.at, &operand, field, true);
        }
        let mut args: Vec<Type> = call.args.iter().map(|arg| self.expr(arg)).collect();
        let Some(target) = &call.target else {
            let name = call.function.strip_prefix('.').unwrap_or(&call.function);
            return match library::function(name, self.env) {
                Some(function) if matches!(function.name, op::AND | op::OR) => self.logical(e, function, &args, call),
                Some(function) => self.overload(e, function, false, &args),
                None => self.undeclared(e.at, &call.function),
            };
        };
        // `optional.of(x)` is a function with a dot in its name.
        // A namespaced function comes first, as in cel-go: `optional.of` must not be taken for a member of a
        // variable.
        if let Some(prefix) = qualified(target)
            && let Some(function) = library::function(&format!("{prefix}.{}", call.function), self.env)
        {
            return self.overload(e, function, false, &args);
        }
        // Only now: a target that is a namespace would be reported as undeclared.
        args.insert(0, self.expr(target));
        match library::function(&call.function, self.env) {
            Some(function) => self.overload(e, function, true, &args),
            None => self.undeclared(e.at, &call.function),
        }
    }

    fn overload(&mut self, e: &Expr, function: &'static Function, member: bool, args: &[Type]) -> Type {
        let args: Vec<Type> = args.iter().map(|t| self.unifier.resolve(t)).collect();
        let mut found: Option<Type> = None;
        let mut overloads = 0;
        for (i, overload) in function.overloads.iter().enumerate() {
            if overload.member != member || overload.params.len() != args.len() {
                continue;
            }
            // Fresh parameters per overload, so that a failed attempt leaves nothing bound in the next.
            let first = self.unifier.reserve();
            let params: Vec<Type> = overload
                .params
                .iter()
                .map(|p| self.unifier.instance(p, first))
                .collect();
            if !self.unifier.all_assignable(&args, &params) {
                continue;
            }
            // All matching overloads are kept: with dynamic arguments, the choice is made at run time.
            overloads |= 1 << i;
            let result = self.unifier.instance(&overload.result, first);
            let result = self.unifier.resolve(&result);
            found = Some(match found {
                None => result,
                // Overloads that agree on the result give its type; others make it dynamic.
                Some(before) if before.is_dyn() || before == result => before,
                Some(_) => Type::Dyn,
            });
        }
        // Also without a match: the reference is complete even if the expression is rejected.
        self.references[e.id] = Reference::Function(Callee {
            function,
            member,
            overloads,
        });
        if let Some(found) = found {
            return found;
        }
        let names: Vec<String> = args.iter().map(|t| self.unifier.close(t).to_string()).collect();
        let shape = match (member, names.split_first()) {
            (true, Some((target, rest))) => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", names.join(", ")),
        };
        let name = function.name;
        self.error(
            e.at,
            format!("found no matching overload for '{name}' applied to '{shape}'"),
        )
    }

    fn logical(&mut self, e: &Expr, function: &'static Function, args: &[Type], call: &Call) -> Type {
        let before = self.errors.len();
        // Both operands are asserted, so each gets an error of its own instead of a missing overload.
        for (arg, ty) in call.args.iter().zip(args) {
            self.assert(arg.at, &Type::Bool, ty);
        }
        self.references[e.id] = Reference::Function(Callee {
            function,
            member: false,
            overloads: 1,
        });
        if self.errors.len() > before {
            Type::Error
        } else {
            Type::Bool
        }
    }
}
