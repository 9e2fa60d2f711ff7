//! The Common Expression Language (CEL) of Kubernetes v1.36.
//!
//! Start at [`Environment`], which declares the variables of an expression, and [`Environment::compile`]. A
//! [`Program`] is type-checked, has an estimated cost ([`Program::estimated_cost`]), and is evaluated over
//! borrowed trees under a cost limit ([`Program::evaluate`]). Errors are worded as cel-go words them. The
//! caller decides what an expression is for and what happens when it fails.
//!
//! # Declaring variables
//!
//! A [`Schema`] says what is known about a variable. For an object of a structural schema, make it bottom-up:
//! [`ObjectType::new`] with a [`Field`] for each property (its name escaped as [`escape`] does),
//! [`Schema::object`], [`Schema::list`], [`Schema::map`] and [`Schema::scalar`], each with the largest size
//! that a value may have; estimates of cost depend on it. [`Schema::nullable`] and [`Schema::list_type`] are
//! fields. For an object without a schema, as in admission policies, declare [`Schema::any`]: the expression
//! is checked as far as its form allows (`dyn`), and everything else at run time. The same schema then turns
//! a tree into a [`Val`] ([`Val::of`]); it copies nothing.
//!
//! A name may have dots: `authorizer.requestResource` or `variables.replicas` declare members that are
//! resolved one by one, whether or not `variables` itself is declared. An [`Activation`] is asked for a
//! variable each time an expression reads it, and may compute it then; [`Variable`]s in an array are the
//! simplest one.
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
mod budget;
mod checker;
mod cost;
mod estimate;
mod eval;
mod lexer;
mod library;
mod parser;
mod plan;
mod source;
mod time_value;
mod types;
mod unify;
mod value;

pub use budget::{Budget, Exceeded};
pub use library::regex::PatternBudget;
pub use source::{Issue, Issues};
pub use time_value::Stamp;
pub use types::{Field, ListType, ObjectType, Schema, Type, escape};
pub use value::authority::{Authority, Authorizer, Check, Decision};
pub use value::format::Format;
pub use value::net::Net;
pub use value::semver::Semver;
pub use value::url::Url;
pub use value::{Dict, Fail, Key, List, Out, Record, Text, TreeError, Val, WrongNames};

use std::sync::Arc;

/// The variables that expressions may name. Copies share their declarations: environments that differ in a few of
/// many variables cost only the difference.
///
/// ```
/// use torana_apimachinery::json;
/// use torana_cel::{Environment, Schema, Type, Val, Variable};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut env = Environment::default();
/// // An object without a schema, and a number.
/// env.declare("object", Schema::any());
/// env.declare("limit", Schema::scalar(Type::Int, 1));
/// let program = env.compile("object.spec.replicas <= limit")?;
/// assert!(program.reads("limit"));
///
/// let (object, schema) = (json!({"spec": {"replicas": 3}}), Schema::any());
/// let variables = [
///     Variable { name: "object", value: Val::of(&object, &schema)? },
///     Variable { name: "limit", value: Val::from(5_i64) },
/// ];
/// assert_eq!(program.evaluate(&variables, 1_000).value?.as_bool(), Some(true));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: imbl::HashMap<Arc<str>, Schema>,
    /// The variable that was declared first; `None` after `forget_root`.
    root: Option<Arc<str>>,
    /// Maximum number of dots in the name of a variable.
    dots: usize,
    constructs_objects: bool,
    binds: bool,
}

/// A compiled expression, which any number of evaluations share.
pub struct Program {
    plan: plan::Plan,
    result: Type,
    variables: Vec<Arc<str>>,
    estimate: u64,
}

/// Why an expression cannot be used for something, in the order in which Kubernetes finds out, and in its
/// words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It has a mistake of syntax or type.
    #[error("compilation failed: {0}")]
    Compilation(#[source] Issues),
    /// It has another type than the place where it is used requires.
    #[error("unexpected type {0}")]
    Type(Type),
    /// Its constants cannot be computed ([`Issues::is_of_constants`]), such as a pattern that is not a regular
    /// expression.
    #[error("program instantiation failed: {0}")]
    Instantiation(#[source] Issues),
}

/// Where an evaluation finds its variables.
pub trait Activation<'a> {
    /// The value of a declared variable; asked each time the expression reads it. `None` is an error of the
    /// expression.
    fn variable(&self, name: &str) -> Option<Out<'a>>;
}

/// A variable of an evaluation.
#[derive(Debug)]
pub struct Variable<'a> {
    /// The name it was declared with.
    pub name: &'a str,
    /// The value in this evaluation.
    pub value: Val<'a>,
}

impl<'a, const N: usize> Activation<'a> for [Variable<'a>; N] {
    fn variable(&self, name: &str) -> Option<Out<'a>> {
        find(self, name)
    }
}

impl<'a> Activation<'a> for Vec<Variable<'a>> {
    fn variable(&self, name: &str) -> Option<Out<'a>> {
        find(self, name)
    }
}

fn dots(name: &str) -> usize {
    name.bytes().filter(|b| *b == b'.').count()
}

fn find<'a>(variables: &[Variable<'a>], name: &str) -> Option<Out<'a>> {
    variables.iter().find(|v| v.name == name).map(|v| Ok(v.value.clone()))
}

/// The end of an evaluation.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// The result, or why the evaluation failed.
    pub value: Out<'a>,
    /// The cost of the evaluation.
    pub cost: u64,
}

impl Environment {
    /// Declares a variable, in place of one of the same name.
    pub fn declare(&mut self, name: &str, schema: Schema) {
        let name: Arc<str> = name.into();
        self.dots = self.dots.max(dots(&name));
        // The variable that is declared first is the root of estimates.
        self.root.get_or_insert_with(|| name.clone());
        self.variables.insert(name, schema);
    }

    /// Lets expressions construct objects, as those of mutating policies do: `Object{…}` and, for the fields
    /// in it, `Object.spec{…}` and so on, with any fields; `JSONPatch{op, path, from, value}`; and the
    /// function `jsonpatch.escapeKey`. The results are [`Val::Record`]s.
    pub fn allow_construction(&mut self) {
        self.constructs_objects = true;
    }

    /// Lets expressions name a value:
    /// `cel.bind(gpu, device.attributes['gpu.example.com'], gpu.memory > gpu.used)`.
    pub fn allow_binding(&mut self) {
        self.binds = true;
    }

    /// Makes estimates use declared sizes only for values that are read from a variable. The rules of custom
    /// resources are estimated without this: there, the elements of a literal count as parts of the first
    /// variable.
    pub fn forget_root(&mut self) {
        self.root = None;
    }

    /// The schema that a variable was declared with.
    pub fn variable(&self, name: &str) -> Option<&Schema> {
        self.variables.get(name)
    }

    /// Number of parts of the longest name of a variable or built-in type, apart from those of constructed objects.
    fn longest_name(&self) -> usize {
        // `google.protobuf.Timestamp`
        1 + self.dots.max(2)
    }

    fn object_type(&self, name: &str) -> Option<Arc<ObjectType>> {
        match name {
            _ if !self.constructs_objects => None,
            "JSONPatch" => Some(value::json_patch::TYPE.clone()),
            "Object" => Some(Arc::new(ObjectType::open(name))),
            // Any name below `Object` is an open type of its own.
            _ => name.starts_with("Object.").then(|| Arc::new(ObjectType::open(name))),
        }
    }

    /// Compiles an expression that must have a certain type.
    ///
    /// ```
    /// use torana_cel::{Environment, Schema, Type};
    ///
    /// let mut env = Environment::default();
    /// let size = || Schema::scalar(Type::Int, 1);
    /// env.declare("self", Schema::record("Range", vec![("min", size()), ("max", size())]));
    /// assert!(env.compile_typed("self.min <= self.max", |of| *of == Type::Bool).is_ok());
    /// let wrong = env.compile_typed("self.max - self.min", |of| *of == Type::Bool);
    /// assert_eq!(wrong.expect_err("it is a number").to_string(), "unexpected type int");
    /// ```
    ///
    /// # Errors
    /// See [`Unusable`].
    pub fn compile_typed(&self, source: &str, accepts: impl FnOnce(&Type) -> bool) -> Result<Program, Unusable> {
        let compiled = self.compile(source);
        let result = match &compiled {
            // Issues of constants keep the result type, because Kubernetes checks the type before it makes a program.
            Ok(program) => Some(program.result_type()),
            Err(issues) => issues.result_type(),
        };
        match result {
            Some(of) if !accepts(of) => Err(Unusable::Type(of.clone())),
            Some(_) => compiled.map_err(Unusable::Instantiation),
            None => compiled.map_err(Unusable::Compilation),
        }
    }

    /// Parses and checks an expression.
    ///
    /// ```
    /// use torana_cel::{Environment, Schema, Type};
    ///
    /// let mut env = Environment::default();
    /// env.declare("name", Schema::scalar(Type::String, 63));
    /// let issues = env.compile("name > 3").expect_err("a string is not a number");
    /// let issue = issues.iter().next().expect("at least one");
    /// assert_eq!(issue.line, 1);
    /// assert_eq!(issue.message, "found no matching overload for '_>_' applied to '(string, int)'");
    /// ```
    ///
    /// # Errors
    /// [`Issues`]: the errors in the expression.
    pub fn compile(&self, source: &str) -> Result<Program, Issues> {
        // The stages run in cel-go's order, each only without errors of the one before.
        let tree = parser::parse(source, self.binds)?;
        let checked = checker::check(source, &tree.root, tree.ids, self)?;
        let estimate = estimate::estimate(&tree.root, &checked, self);
        let result = checked.types[tree.root.id].clone();
        let plan =
            plan::plan(&tree.root, &checked).map_err(|why| Issues::of_constants(why.to_string(), result.clone()))?;
        Ok(Program {
            plan,
            result,
            variables: checked.variables,
            estimate,
        })
    }
}

/// True if the expression selects the field from the variable by name: `claims.email`, `claims.?email` or
/// `has(claims.email)`, but not `claims['email']`. False if the source does not parse.
pub fn selects(source: &str, variable: &str, field: &str) -> bool {
    parser::parse(source, false).is_ok_and(|tree| tree.root.selects(variable, field))
}

impl Program {
    /// The type of the result.
    pub fn result_type(&self) -> &Type {
        &self.result
    }

    /// The declared variables that the expression reads, each once.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(AsRef::as_ref)
    }

    /// True if the expression reads the variable.
    pub fn reads(&self, variable: &str) -> bool {
        self.variables.iter().any(|v| &**v == variable)
    }

    /// The maximum cost of an evaluation, as far as the sizes in the schemas bound it.
    pub fn estimated_cost(&self) -> u64 {
        self.estimate
    }

    /// Evaluates the expression. An evaluation that would cost more than `limit` ends with [`Fail::Cost`].
    ///
    /// ```
    /// use torana_cel::{Environment, Fail, Variable};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let program = Environment::default().compile("lists.range(300).all(i, i >= 0)")?;
    /// let nothing: [Variable<'_>; 0] = [];
    /// assert_eq!(program.evaluate(&nothing, 1_000_000).value?.as_bool(), Some(true));
    /// assert!(program.evaluate(&nothing, 100).value.is_err_and(|why| why == Fail::Cost));
    /// # Ok(())
    /// # }
    /// ```
    pub fn evaluate<'a>(&'a self, activation: &dyn Activation<'a>, limit: u64) -> Outcome<'a> {
        self.evaluate_within(activation, limit, &PatternBudget::full())
    }

    /// As [`evaluate`](Self::evaluate), for one of several evaluations that share the work on regular
    /// expressions. One that would do more than is left ends with [`Fail::Cost`], too.
    pub fn evaluate_within<'a>(
        &'a self,
        activation: &dyn Activation<'a>,
        limit: u64,
        patterns: &PatternBudget,
    ) -> Outcome<'a> {
        let mut machine = eval::Machine::new(self, activation, limit, patterns);
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
