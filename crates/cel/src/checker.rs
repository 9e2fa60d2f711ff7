//! The type checker: finds the type of every node, or says why an expression has none.

use crate::Environment;
use crate::ast::{Call, Entry, Expr, Fold, Kind, Literal, op};
use crate::library;
use crate::source::Issues;
use crate::types::{ObjectType, Type};
use crate::unify::Unifier;
use std::sync::Arc;

/// What the checker found.
pub(crate) struct Checked {
    /// The type of each node, by id.
    pub types: Vec<Type>,
    /// The variables that the expression reads.
    pub variables: Vec<Arc<str>>,
    /// The function that each call invokes, by id, and whether the call has a target.
    pub calls: Vec<Option<(&'static library::Function, bool)>>,
}

pub(crate) fn check(source: &str, root: &Expr, ids: usize, env: &Environment) -> Result<Checked, Issues> {
    let mut checker = Checker {
        env,
        types: vec![Type::Dyn; ids],
        scopes: Vec::new(),
        unifier: Unifier::default(),
        errors: Vec::new(),
        variables: Vec::new(),
        calls: vec![None; ids],
    };
    checker.expr(root);
    if !checker.errors.is_empty() {
        return Err(Issues::place(source, checker.errors));
    }
    let unifier = &checker.unifier;
    Ok(Checked {
        types: checker.types.iter().map(|t| unifier.close(t)).collect(),
        variables: checker.variables,
        calls: checker.calls,
    })
}

struct Checker<'e> {
    env: &'e Environment,
    types: Vec<Type>,
    scopes: Vec<(Arc<str>, Type)>,
    unifier: Unifier,
    errors: Vec<(u32, String)>,
    variables: Vec<Arc<str>>,
    calls: Vec<Option<(&'static library::Function, bool)>>,
}

impl Checker<'_> {
    fn error(&mut self, at: u32, message: String) -> Type {
        self.errors.push((at, message));
        Type::Error
    }

    fn expr(&mut self, e: &Expr) -> Type {
        torana_apimachinery::interrupt::checkpoint();
        let ty = match &e.kind {
            Kind::Literal(literal) => match literal {
                Literal::Null => Type::Null,
                Literal::Bool(_) => Type::Bool,
                Literal::Int(_) => Type::Int,
                Literal::Uint(_) => Type::Uint,
                Literal::Double(_) => Type::Double,
                Literal::String(_) => Type::String,
                Literal::Bytes(_) => Type::Bytes,
            },
            Kind::Ident(name) => self.ident(e.at, name),
            Kind::Select(select) => {
                let operand = self.expr(&select.operand);
                let field = self.field(e.at, &operand, &select.field);
                if select.test { Type::Bool } else { field }
            }
            Kind::Call(call) => self.call(e, call),
            Kind::List(elements) => {
                let mut of = None;
                for element in elements {
                    let mut ty = self.expr(&element.value);
                    if element.optional {
                        ty = self.unwrap_optional(element.value.at, &ty);
                    }
                    of = Some(self.join(element.value.at, of, ty));
                }
                Type::list(of.unwrap_or_else(|| self.unifier.fresh()))
            }
            Kind::Map(entries) => self.map(entries),
            Kind::Fold(fold) => self.fold(fold),
        };
        let ty = self.unifier.resolve(&ty);
        self.types[e.id] = ty.clone();
        ty
    }

    fn ident(&mut self, at: u32, name: &Arc<str>) -> Type {
        if let Some((_, ty)) = self.scopes.iter().rev().find(|(n, _)| n == name) {
            return ty.clone();
        }
        if let Some(schema) = self.env.variable(name) {
            if !self.variables.contains(name) {
                self.variables.push(name.clone());
            }
            return schema.ty.clone();
        }
        if library::TYPE_NAMES.contains(&&**name) {
            return Type::Type;
        }
        self.error(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn field(&mut self, at: u32, operand: &Type, name: &str) -> Type {
        match self.unifier.resolve(operand) {
            Type::Dyn => Type::Dyn,
            Type::Error => Type::Error,
            Type::Map(of) => of.1.clone(),
            Type::Object(of) => self.object_field(at, &of, name),
            Type::Optional(of) => match self.field(at, &of, name) {
                Type::Error => Type::Error,
                field @ Type::Optional(_) => field,
                field => Type::optional(field),
            },
            param @ Type::Param(_) => {
                self.unifier.assignable(&param, &Type::Dyn);
                Type::Dyn
            }
            ty => self.error(at, format!("type '{ty}' does not support field selection")),
        }
    }

    fn object_field(&mut self, at: u32, of: &ObjectType, name: &str) -> Type {
        match of.field(name) {
            Some(field) => field.schema.ty.clone(),
            None => self.error(at, format!("undefined field '{name}'")),
        }
    }

    fn unwrap_optional(&mut self, at: u32, ty: &Type) -> Type {
        match self.unifier.resolve(ty) {
            Type::Optional(of) => of.as_ref().clone(),
            open if open.is_open() => open,
            other => self.error(
                at,
                format!("expected type 'optional_type({other})' but found '{other}'"),
            ),
        }
    }

    /// The type of elements of which one is `ty`: literals hold values of one type.
    fn join(&mut self, at: u32, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        if before.is_open() || ty.is_open() {
            return Type::Dyn;
        }
        if self.unifier.assignable(&ty, &before) {
            return before;
        }
        let (before, ty) = (self.unifier.close(&before), self.unifier.close(&ty));
        self.error(at, format!("expected type '{before}' but found '{ty}'"))
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.expr(&entry.key);
            keys = Some(self.join(entry.key.at, keys, key));
            let mut value = self.expr(&entry.value);
            if entry.optional {
                value = self.unwrap_optional(entry.value.at, &value);
            }
            values = Some(self.join(entry.value.at, values, value));
        }
        let key = keys.unwrap_or_else(|| self.unifier.fresh());
        let value = values.unwrap_or_else(|| self.unifier.fresh());
        Type::map(key, value)
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        let range = self.expr(&fold.range);
        let accumulator = self.expr(&fold.init);
        let (first, second) = match self.unifier.resolve(&range) {
            Type::List(of) if fold.var2.is_some() => (Type::Int, of.as_ref().clone()),
            Type::List(of) => (of.as_ref().clone(), Type::Error),
            Type::Map(of) => of.as_ref().clone(),
            Type::Dyn => (Type::Dyn, Type::Dyn),
            Type::Error => (Type::Error, Type::Error),
            param @ Type::Param(_) => {
                self.unifier.assignable(&param, &Type::Dyn);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        let depth = self.scopes.len();
        self.scopes.push((fold.accumulator.clone(), accumulator.clone()));
        self.scopes.push((fold.var.clone(), first));
        if let Some(var2) = &fold.var2 {
            self.scopes.push((var2.clone(), second));
        }
        let condition = self.expr(&fold.condition);
        self.assert(fold.condition.at, &Type::Bool, &condition);
        let step = self.expr(&fold.step);
        self.assert(fold.step.at, &accumulator, &step);
        self.scopes.truncate(depth + 1);
        let result = self.expr(&fold.result);
        self.scopes.truncate(depth);
        result
    }

    fn assert(&mut self, at: u32, wanted: &Type, found: &Type) {
        if !self.unifier.assignable(found, wanted) {
            let (wanted, found) = (self.unifier.close(wanted), self.unifier.close(found));
            self.error(at, format!("expected type '{wanted}' but found '{found}'"));
        }
    }

    fn call(&mut self, e: &Expr, call: &Call) -> Type {
        let at = e.at;
        if &*call.function == op::OPT_SELECT {
            let operand = self.expr(&call.args[0]);
            self.expr(&call.args[1]);
            let Kind::Literal(Literal::String(field)) = &call.args[1].kind else {
                return Type::Error;
            };
            return match self.field(at, &operand, field) {
                Type::Error => Type::Error,
                field @ Type::Optional(_) => field,
                field => Type::optional(field),
            };
        }
        // `optional.of(x)` is a function with a dot in its name, unless `optional` is a variable.
        let qualified = call.target.as_ref().and_then(|t| self.qualified(t, &call.function));
        let function = qualified.as_deref().unwrap_or(&call.function);
        let mut args = Vec::with_capacity(call.args.len() + 1);
        let member = qualified.is_none() && call.target.is_some();
        if let (true, Some(target)) = (member, &call.target) {
            args.push(self.expr(target));
        }
        // Lists that are formatted may be mixed.
        let errors = self.errors.len();
        for arg in &call.args {
            args.push(self.expr(arg));
        }
        if function == "format" && member && self.errors.len() > errors {
            let mixed = |(_, m): &(u32, String)| !m.starts_with("expected type '");
            let kept = self.errors.split_off(errors);
            self.errors.extend(kept.into_iter().filter(mixed));
        }
        let Some(function) = library::function(function) else {
            let name = function.to_owned();
            return self.error(at, format!("undeclared reference to '{name}' (in container '')"));
        };
        self.calls[e.id] = Some((function, member));
        self.resolve(at, function, member, &args, call)
    }

    fn qualified(&self, target: &Expr, function: &str) -> Option<String> {
        let Kind::Ident(name) = &target.kind else { return None };
        let shadowed = self.scopes.iter().any(|(n, _)| n == name) || self.env.variable(name).is_some();
        let full = format!("{name}.{function}");
        (!shadowed && library::function(&full).is_some()).then_some(full)
    }

    fn resolve(&mut self, at: u32, function: &library::Function, member: bool, args: &[Type], call: &Call) -> Type {
        if args.contains(&Type::Error) {
            return Type::Error;
        }
        let mut found: Option<Type> = None;
        for overload in &function.overloads {
            if overload.member != member || overload.params.len() != args.len() {
                continue;
            }
            let first = self.unifier.reserve();
            let params: Vec<Type> = overload
                .params
                .iter()
                .map(|p| self.unifier.instance(p, first))
                .collect();
            if !self.unifier.all_assignable(args, &params) {
                continue;
            }
            let result = self.unifier.instance(&overload.result, first);
            let result = self.unifier.resolve(&result);
            found = Some(match found {
                None => result,
                Some(before) if before == result => before,
                Some(_) => Type::Dyn,
            });
        }
        if let Some(found) = found {
            self.constant(function.name, call);
            return found;
        }
        let names: Vec<String> = args.iter().map(|t| self.unifier.close(t).to_string()).collect();
        let shape = match (member, names.split_first()) {
            (true, Some((target, rest))) => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", names.join(", ")),
        };
        let name = function.name;
        self.error(
            at,
            format!("found no matching overload for '{name}' applied to '{shape}'"),
        )
    }

    /// Constant durations, timestamps and regular expressions are checked here.
    fn constant(&mut self, function: &str, call: &Call) {
        let (Some(arg), "duration" | "timestamp" | "matches") = (call.args.last(), function) else {
            return;
        };
        let Kind::Literal(Literal::String(text)) = &arg.kind else {
            return;
        };
        let valid = match function {
            "duration" => crate::time_value::parse_duration(text).is_some(),
            "timestamp" => crate::time_value::Stamp::parse(text).is_some(),
            _ => library::regex::compile(text).is_ok(),
        };
        if !valid {
            self.error(arg.at, format!("invalid {function} argument"));
        }
    }
}
