//! The Common Expression Language (CEL) as Kubernetes v1.36 speaks it.
//!
//! Start at [`Environment`], which declares the variables of an expression, and [`Environment::compile`]. A [`Program`] is
//! type-checked, has an estimated cost ([`Program::estimated_cost`]), and is evaluated over borrowed trees under a cost
//! limit ([`Program::evaluate`]). Errors are worded as cel-go words them. What an expression is for, and what happens
//! when it fails, is left to the caller.
//!
//! ```
//! use torana_apimachinery::json;
//! use torana_cel::{Environment, Schema, Type, Val, Variable};
//!
//! let mut env = Environment::default();
//! env.declare("self", Schema::list(Schema::scalar(Type::String, 20), 10));
//! let program = env.compile("self.all(s, s.startsWith('a'))").expect("it is well typed");
//!
//! let (tree, schema) = (json!(["apple", "avocado"]), env.variable("self").expect("declared above"));
//! let value = Val::of(&tree, schema).expect("it is a list of strings");
//! let outcome = program.evaluate(&[Variable { name: "self", value }], 1_000);
//! assert_eq!(outcome.value.expect("it evaluates").as_bool(), Some(true));
//!
//! let wrong = env.compile("self + 1").expect_err("lists and integers do not add up");
//! assert!(wrong.to_string().contains("found no matching overload for '_+_' applied to '(list(string), int)'"));
//! ```

mod ast;
mod checker;
mod cost;
mod estimate;
mod eval;
mod lexer;
mod library;
mod macros;
mod parser;
mod source;
mod time_value;
mod types;
mod unify;
mod value;

pub use library::net::Net;
pub use library::semver::Semver;
pub use library::url::Url;
pub use source::{Issue, Issues};
pub use time_value::Stamp;
pub use types::{Field, ObjectType, Schema, Type};
pub use value::{Dict, Fail, Key, List, NumberKind, Out, Text, Val};

use std::sync::Arc;

/// The variables that expressions may read.
#[derive(Debug, Default)]
pub struct Environment {
    variables: Vec<(Arc<str>, Schema)>,
}

/// A compiled expression.
pub struct Program {
    root: ast::Expr,
    /// The function that each call invokes, by the id of its node, and whether the call has a target.
    calls: Vec<Option<(&'static library::Function, bool)>>,
    result: Type,
    variables: Vec<Arc<str>>,
    estimate: u64,
}

/// A variable of an evaluation.
#[derive(Debug)]
pub struct Variable<'a> {
    /// The name it was declared with.
    pub name: &'static str,
    /// Its value.
    pub value: Val<'a>,
}

/// The end of an evaluation.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The result, or why there is none.
    pub value: Out<'a>,
    /// What the evaluation cost.
    pub cost: u64,
}

impl Environment {
    /// Declares a variable.
    pub fn declare(&mut self, name: &str, schema: Schema) {
        self.variables.retain(|(n, _)| &**n != name);
        self.variables.push((name.into(), schema));
    }

    /// The schema that a variable was declared with.
    pub fn variable(&self, name: &str) -> Option<&Schema> {
        self.variables.iter().find(|(n, _)| &**n == name).map(|(_, s)| s)
    }

    /// Parses and checks an expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(&self, source: &str) -> Result<Program, Issues> {
        let tree = parser::parse(source)?;
        let checked = checker::check(source, &tree.root, tree.ids, self)?;
        let estimate = estimate::estimate(&tree.root, &checked, self);
        let result = checked.types[tree.root.id].clone();
        Ok(Program {
            root: tree.root,
            calls: checked.calls,
            result,
            variables: checked.variables,
            estimate,
        })
    }
}

impl Program {
    /// The type of the result.
    pub fn result_type(&self) -> &Type {
        &self.result
    }

    /// True if the expression reads the variable.
    pub fn reads(&self, variable: &str) -> bool {
        self.variables.iter().any(|v| &**v == variable)
    }

    /// The most that an evaluation costs, as far as the sizes in the schemas tell.
    pub fn estimated_cost(&self) -> u64 {
        self.estimate
    }

    /// Evaluates the expression. An evaluation that would cost more than `limit` ends with [`Fail::Cost`].
    pub fn evaluate<'a>(&self, variables: &[Variable<'a>], limit: u64) -> Outcome<'a> {
        let mut machine = eval::Machine::new(self, variables, limit);
        let value = machine.run();
        Outcome {
            value,
            cost: machine.cost,
        }
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
