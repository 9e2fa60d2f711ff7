//! The type checker: determines the type of every node and resolves every name, or reports why that is
//! impossible.

mod call;
mod format;
mod validate;

use crate::Environment;
use crate::ast::{Element, Entry, Expr, ExprKind, Fold, Id, Literal, Select, Struct};
use crate::library::{self, Callee};
use crate::parser::macros;
use crate::source::{Issues, MAX_ISSUES};
use crate::types::{ObjectType, Type};
use crate::unify::{MAX_PARTS, Unifier};
use std::collections::HashMap;
use std::sync::Arc;

/// The result of the check.
pub(crate) struct Checked {
    /// The type of each node, by id.
    pub types: Vec<Type>,
    /// The reference of each node, by id.
    pub references: Vec<Reference>,
    /// The declared variables that the expression reads.
    pub variables: Vec<Arc<str>>,
}

/// The declaration that a node refers to.
#[derive(Clone, Default)]
pub(crate) enum Reference {
    /// The node refers to nothing.
    #[default]
    None,
    /// The declared variable with this index in [`Checked::variables`].
    Variable(usize),
    /// A type that is used as a value.
    Type(Type),
    /// The type of the object that is constructed.
    Object(Arc<ObjectType>),
    /// A function, with the overloads that the arguments allow.
    Function(Callee),
}

pub(crate) fn check(source: &str, root: &Expr, ids: usize, env: &Environment) -> Result<Checked, Issues> {
    let mut checker = Checker {
        env,
        // `Dyn` is overwritten for every node that is visited; ids of macro arguments that expansion dropped keep it.
        types: vec![Type::Dyn; ids],
        references: vec![Reference::None; ids],
        scopes: Vec::new(),
        unifier: Unifier::default(),
        errors: Vec::new(),
        variables: Vec::new(),
        indexes: HashMap::new(),
    };
    checker.expr(root);
    // Without types, validation of literals and closing would report consequences of the same error.
    if !checker.errors.is_empty() {
        return Err(Issues::place(source, checker.errors));
    }
    // Types are closed once all parameters are bound; closing while checking would freeze some as dyn.
    let mut closing = checker.unifier.closing();
    let checked = Checked {
        types: checker.types.iter().map(|t| closing.close(t)).collect(),
        references: checker.references,
        variables: checker.variables,
    };
    // Literals are validated in expressions that have no other error.
    let invalid = validate::literals(root, &checked);
    if invalid.is_empty() {
        Ok(checked)
    } else {
        Err(Issues::place(source, invalid))
    }
}

struct Checker<'e> {
    env: &'e Environment,
    types: Vec<Type>,
    references: Vec<Reference>,
    scopes: Vec<(Arc<str>, Type)>,
    unifier: Unifier,
    errors: Vec<(u32, String)>,
    variables: Vec<Arc<str>>,
    /// The indexes in `variables`.
    indexes: HashMap<Arc<str>, usize>,
}

impl Checker<'_> {
    fn error(&mut self, at: u32, message: String) -> Type {
        self.errors.push((at, message));
        Type::Error
    }

    fn undeclared(&mut self, at: u32, name: &str) -> Type {
        self.error(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn mismatch(&mut self, at: u32, wanted: &Type, found: &Type) -> Type {
        let (wanted, found) = (self.unifier.close(wanted), self.unifier.close(found));
        self.error(at, format!("expected type '{wanted}' but found '{found}'"))
    }

    fn expr(&mut self, e: &Expr) -> Type {
        torana_apimachinery::interrupt::checkpoint();
        let ty = match &e.kind {
            ExprKind::Literal(literal) => match literal {
                Literal::Null => Type::Null,
                Literal::Bool(_) => Type::Bool,
                Literal::Int(_) => Type::Int,
                Literal::Uint(_) => Type::Uint,
                Literal::Double(_) => Type::Double,
                Literal::String(_) => Type::String,
                Literal::Bytes(_) => Type::Bytes,
            },
            ExprKind::Ident(name) => match self.identifier(e.id, name) {
                Some(ty) => ty,
                None => self.undeclared(e.at, name),
            },
            ExprKind::Select(select) => self.select(e, select),
            ExprKind::Call(call) => self.call(e, call),
            ExprKind::List(elements) => self.list(elements),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct(of) => self.object(e, of),
            ExprKind::Fold(fold) => self.fold(fold),
        };
        let mut ty = self.unifier.resolve(&ty);
        // Before the type is stored: a type that doubles with each loop would take exponential time to print and
        // close.
        if self.unifier.parts(&ty) > MAX_PARTS {
            ty = self.error(e.at, format!("type of the expression has more than {MAX_PARTS} parts"));
        }
        self.types[e.id] = ty.clone();
        ty
    }

    /// The type of the variable or type that a name refers to. The name may be qualified.
    fn identifier(&mut self, id: Id, name: &str) -> Option<Type> {
        // Innermost first: a loop variable hides variables and types of the same name.
        if let Some((_, ty)) = self.scopes.iter().rev().find(|(n, _)| &**n == name) {
            return Some(ty.clone());
        }
        if let Some(schema) = self.env.variable(name) {
            // A map beside the list: policies refer to their variables hundreds of times.
            let index = self.indexes.get(name).copied().unwrap_or_else(|| {
                let name: Arc<str> = name.into();
                self.variables.push(name.clone());
                self.indexes.insert(name, self.variables.len() - 1);
                self.variables.len() - 1
            });
            self.references[id] = Reference::Variable(index);
            return Some(schema.ty.clone());
        }
        let declared = self.env.object_type(name).map(Type::Object);
        let ty = declared.or_else(|| library::type_named(name))?;
        self.references[id] = Reference::Type(ty.clone());
        Some(Type::Type(ty.into()))
    }

    fn select(&mut self, e: &Expr, select: &Select) -> Type {
        // A chain may be a qualified name; cel-go prefers the longest interpretation as a name over a selection.
        let name = self.name(select);
        if !select.test
            && let Some(name) = &name
            && let Some(ty) = self.identifier(e.id, name)
        {
            return ty;
        }
        // A declared member exists; reading it may still fail.
        if select.test
            && let Some(name) = &name
            && self.env.variable(name).is_some()
        {
            // Records the reference; the type does not matter for `has`.
            self.identifier(e.id, name);
            return Type::Bool;
        }
        let operand = self.expr(&select.operand);
        let field = self.field(e.at, &operand, &select.field, false);
        if select.test { Type::Bool } else { field }
    }

    /// The name that a chain of selections spells, unless it is longer than any that is declared: every part
    /// of a chain is looked up.
    fn name(&self, select: &Select) -> Option<String> {
        let (mut parts, mut first) = (2, &select.operand);
        while let ExprKind::Select(inner) = &first.kind
            && !inner.test
        {
            parts += 1;
            // Without the bound, a chain of n selections would build n names, which is quadratic.
            if parts > self.env.longest_name() && !self.env.constructs_objects {
                return None;
            }
            first = &inner.operand;
        }
        match &first.kind {
            ExprKind::Ident(first) if parts <= self.env.longest_name() || &**first == "Object" => {
                qualified_select(select)
            }
            _ => None,
        }
    }

    /// The type of a selected field; that of an optional object, or of an optional selection, is optional.
    fn field(&mut self, at: u32, operand: &Type, name: &str, optional: bool) -> Type {
        let operand = self.unifier.resolve(operand);
        let (of, optional) = match &operand {
            Type::Optional(of) => (self.unifier.resolve(of), true),
            _ => (operand, optional),
        };
        let field = match &of {
            Type::Map(of) => of.1.clone(),
            Type::Object(of) => match of.field(name) {
                Some(field) => field.schema.ty.clone(),
                None => self.error(at, format!("undefined field '{name}'")),
            },
            Type::Param(_) => {
                // The operand has to be something with fields; binding it to dyn lets every later use pass.
                self.unifier.assignable(&Type::Dyn, &of);
                Type::Dyn
            }
            of if of.is_open() => Type::Dyn,
            // To cel-go these are objects whose declaration is missing.
            Type::Opaque(name) if !name.is_empty() && !name.starts_with("net.") => {
                self.error(at, format!("unexpected failed resolution of '{name}'"))
            }
            of => {
                let of = self.unifier.close(of);
                self.error(at, format!("type '{of}' does not support field selection"));
                Type::Dyn
            }
        };
        if optional { Type::optional(field) } else { field }
    }

    fn unwrap_optional(&mut self, at: u32, ty: &Type) -> Type {
        match self.unifier.resolve(ty) {
            Type::Optional(of) => of.as_ref().clone(),
            open if open.is_dyn() => open,
            other => {
                // cel-go reports the wanted type as an optional of what was found.
                self.mismatch(at, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    /// The type of elements of which one is `ty`. That literals hold values of one type is validated later,
    /// because the values of `format` may differ.
    fn join(&mut self, before: Option<Type>, ty: Type) -> Type {
        let Some(before) = before else { return ty };
        // Elements of different types make the literal dynamic, as cel-go does without homogeneous aggregate
        // literals.
        match self.unifier.assignable(&before, &ty) {
            true => self.unifier.general(&before, &ty),
            false => Type::Dyn,
        }
    }

    fn list(&mut self, elements: &[Element]) -> Type {
        let mut of = None;
        for element in elements {
            let mut ty = self.expr(&element.value);
            if element.optional {
                ty = self.unwrap_optional(element.value.at, &ty);
            }
            of = Some(self.join(of, ty));
        }
        // An empty list takes its element type from its use.
        Type::list(of.unwrap_or_else(|| self.unifier.fresh()))
    }

    fn map(&mut self, entries: &[Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.expr(&entry.key);
            keys = Some(self.join(keys, key));
            let mut value = self.expr(&entry.value);
            if entry.optional {
                value = self.unwrap_optional(entry.value.at, &value);
            }
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.unifier.fresh());
        let value = values.unwrap_or_else(|| self.unifier.fresh());
        Type::map(key, value)
    }

    fn object(&mut self, e: &Expr, of: &Struct) -> Type {
        // A leading dot makes the name absolute; all names are, without a container.
        let name = of.name.strip_prefix('.').unwrap_or(&of.name);
        let found = self.env.object_type(name);
        if found.is_none() {
            match self.identifier(e.id, name) {
                // Its fields are not checked.
                None => return self.undeclared(e.at, name),
                Some(Type::Type(_)) => self.error(e.at, format!("'{name}' is not a message type")),
                Some(ty) => self.error(e.at, format!("'{ty}' is not a type")),
            };
        }
        for field in &of.fields {
            let mut value = self.expr(&field.value);
            let wanted = match found.as_ref().map(|of| of.field(&field.name)) {
                None => Type::Error,
                // Unknown types and fields accept anything, so that one mistake gives one error.
                Some(Some(field)) => field.schema.ty.clone(),
                Some(None) => self.error(field.at, format!("undefined field '{}'", field.name)),
            };
            if field.optional {
                value = self.unwrap_optional(field.value.at, &value);
            }
            if !self.unifier.assignable(&wanted, &value) {
                let (name, value) = (&field.name, self.unifier.close(&value));
                self.error(
                    field.at,
                    format!("expected type of field '{name}' is '{wanted}' but provided type is '{value}'"),
                );
            }
        }
        let Some(found) = found else { return Type::Error };
        self.references[e.id] = Reference::Object(found.clone());
        Type::Object(found)
    }

    fn fold(&mut self, fold: &Fold) -> Type {
        let range = self.expr(&fold.range);
        // Errors of the initializer are those of the target for optional macros.
        let before = self.errors.len();
        let accumulator = self.expr(&fold.init);
        // cel-go's expansion of the macro contains the target twice, so errors in it are reported twice.
        if &*fold.accumulator == macros::TARGET && self.errors.len() < MAX_ISSUES {
            self.errors.extend_from_within(before..);
        }
        let (first, second) = match self.unifier.resolve(&range) {
            Type::List(of) if fold.var2.is_some() => (Type::Int, of.as_ref().clone()),
            // A list with one variable has no second one, and nothing can refer to it.
            Type::List(of) => (of.as_ref().clone(), Type::Error),
            Type::Map(of) => of.as_ref().clone(),
            open @ (Type::Dyn | Type::Error | Type::Param(_)) => {
                // A parameter becomes dyn, as cel-go does when the range has no known type.
                self.unifier.assignable(&Type::Dyn, &open);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let other = self.unifier.close(&other);
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.error(fold.range.at, message);
                (Type::Error, Type::Error)
            }
        };
        // Variables are visible in condition and step only; the result sees just the accumulator.
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
        if !self.unifier.assignable(wanted, found) {
            self.mismatch(at, wanted, found);
        }
    }
}

/// The name that a chain of selections spells.
fn qualified(e: &Expr) -> Option<String> {
    match &e.kind {
        ExprKind::Ident(name) => Some(name.to_string()),
        ExprKind::Select(select) if !select.test => qualified_select(select),
        _ => None,
    }
}

fn qualified_select(select: &Select) -> Option<String> {
    let mut name = qualified(&select.operand)?;
    name.push('.');
    name.push_str(&select.field);
    Some(name)
}
