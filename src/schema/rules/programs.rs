//! The programs of rules. [`prepare`] compiles those of a schema.

use super::declare::{declare, property};
use super::{Rule, Ruleset};
use crate::interrupt::checkpoint;
use crate::schema::{Additional, Node};
use torana_cel::{Environment, Issues, Program, Schema, Type, Unusable};

pub(super) const SELF: &str = "self";
pub(super) const OLD_SELF: &str = "oldSelf";

/// The programs of the rules of a schema.
#[derive(Debug)]
pub(super) struct Programs {
    /// The declaration of the value.
    pub(super) schema: Schema,
    /// One for each rule.
    pub(super) list: Box<[Compiled]>,
    /// True if any rule reads the old value.
    pub(super) reads_old: bool,
}

/// The programs of a rule.
#[derive(Debug)]
pub(super) struct Compiled {
    /// Evaluates to true if the value is valid.
    pub(super) rule: Result<Program, CompileError>,
    /// Computes the message of a failure; `None` if the rule has no expression for it.
    pub(super) message: Option<Result<Program, CompileError>>,
    /// True if the rule reads the old value.
    pub(super) reads_old: bool,
}

/// Why a rule, or the expression of its message, does not compile. Messages as upstream words them.
#[derive(Debug, thiserror::Error)]
pub(super) enum CompileError {
    #[error("{0} failed: {1}")]
    Failed(&'static str, #[source] Issues),
    #[error("cel expression must evaluate to a bool")]
    NotBool,
    #[error("messageExpression must evaluate to a string")]
    NotString,
}

/// The expressions of a rule.
#[derive(Clone, Copy)]
enum Part {
    Rule,
    Message,
}

/// What the enclosing schemas determine about the declaration of a schema.
#[derive(Clone)]
enum Scope {
    /// None of them has rules, so nothing is declared yet.
    Outside,
    /// The declaration of its values, which belongs to that of the schemas around it: each type is declared once.
    Declared(Schema),
    /// One of them has no declaration, and without it upstream has none for the schemas below either.
    Undeclarable,
}

impl Scope {
    /// Declares the values of a schema.
    fn declare(node: &Node, root: bool) -> Self {
        declare(node, root).map_or(Self::Undeclarable, |d| Self::Declared(d.schema))
    }

    /// The scope of a schema below one of this scope. `part` finds its declaration in that of the one above.
    fn below(&self, child: &Node, part: impl FnOnce(&Schema) -> Option<Schema>) -> Self {
        match self {
            // A schema without rules is not compiled, so it needs no declaration.
            _ if !child.has_rules => Self::Outside,
            // Members without a type, or whose name expressions cannot spell, have none there.
            Self::Declared(above) => part(above).map_or_else(|| Self::declare(child, child.embedded), Self::Declared),
            other => other.clone(),
        }
    }
}

/// Compiles the rules at and below the schema of an object. Does nothing the second time.
pub(in crate::schema) fn prepare(root: &Node) {
    walk(root, true, Scope::Outside);
}

fn walk(node: &Node, root: bool, around: Scope) {
    if !node.has_rules {
        return;
    }
    checkpoint();
    let mut scope = around;
    if let Some(rules) = &node.rules {
        if matches!(scope, Scope::Outside) {
            scope = Scope::declare(node, root);
        }
        if rules.programs.get().is_none() {
            let programs = match &scope {
                Scope::Declared(schema) => Some(Programs::compile(rules, schema.clone())),
                Scope::Outside | Scope::Undeclarable => None,
            };
            // Another thread may have been faster, with the same result.
            let _ = rules.programs.set(programs);
        }
    }
    for (name, child) in &node.properties {
        // Embedded resources have `apiVersion`, `kind` and `metadata` like the root.
        walk(child, child.embedded, scope.below(child, |of| property(of, name)));
    }
    let items = |of: &Schema| of.items.as_deref().cloned();
    if let Some(of) = &node.items {
        walk(of, of.embedded, scope.below(of, items));
    }
    if let Additional::Schema(of) = &node.additional {
        walk(of, of.embedded, scope.below(of, items));
    }
}

impl Programs {
    fn compile(rules: &Ruleset, schema: Schema) -> Self {
        let mut plain = Environment::default();
        // The old value has the same type as the new one.
        plain.declare(SELF, schema.clone());
        plain.declare(OLD_SELF, schema.clone());
        let mut optional = Environment::default();
        optional.declare(SELF, schema.clone());
        let ty = Type::Optional(schema.ty.clone().into());
        // For rules with `optionalOldSelf`, and their messages.
        optional.declare(OLD_SELF, Schema::scalar(ty, schema.max_size));
        let compile = |rule: &Rule| {
            checkpoint();
            let env = if rule.optional_old_self == Some(true) {
                &optional
            } else {
                &plain
            };
            Compiled::new(rule, env)
        };
        let list: Box<[Compiled]> = rules.list.iter().map(compile).collect();
        Self {
            reads_old: list.iter().any(|c| c.reads_old),
            schema,
            list,
        }
    }
}

impl Compiled {
    fn new(rule: &Rule, env: &Environment) -> Self {
        let program = program(env, &rule.rule, Part::Rule);
        // As upstream, the message of a rule that does not compile is not compiled.
        let message = (program.is_ok() && !rule.message_expression.is_empty())
            .then(|| self::program(env, &rule.message_expression, Part::Message));
        Self {
            // A rule that does not compile counts as not reading it, and reports its error on every write.
            reads_old: program.as_ref().is_ok_and(|p| p.reads(OLD_SELF)),
            rule: program,
            message,
        }
    }
}

fn program(env: &Environment, source: &str, part: Part) -> Result<Program, CompileError> {
    let wanted = match part {
        Part::Rule => Type::Bool,
        Part::Message => Type::String,
    };
    env.compile_typed(source, |of| *of == wanted)
        .map_err(|why| match (part, why) {
            (Part::Rule, Unusable::Compilation(issues)) => CompileError::Failed("compilation", issues),
            (Part::Rule, Unusable::Type(_)) => CompileError::NotBool,
            (Part::Rule, Unusable::Instantiation(issues)) => CompileError::Failed("program instantiation", issues),
            (Part::Message, Unusable::Compilation(issues)) => {
                CompileError::Failed("messageExpression compilation", issues)
            }
            (Part::Message, Unusable::Type(_)) => CompileError::NotString,
            (Part::Message, Unusable::Instantiation(issues)) => {
                CompileError::Failed("messageExpression instantiation", issues)
            }
        })
}
