//! The functions. Each library lists its functions with their overloads as text; [`function`] finds them by name.

mod lists;
pub(crate) mod net;
mod optional;
mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
mod sets;
mod signature;
mod standard;
mod strings;
mod times;
pub(crate) mod url;

pub(crate) use standard::{key, shown};

use crate::types::Type;
use crate::value::{Out, Val};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Evaluates a call; may take its arguments.
pub(crate) type Run = for<'a, 'x> fn(&'x mut [Val<'a>]) -> Out<'a>;

/// A name, and what is called by it.
pub(crate) struct Function {
    pub name: &'static str,
    pub overloads: Vec<Overload>,
    pub body: Body,
}

/// How a call is evaluated.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// After its arguments, which must have no error.
    Strict(Run),
    And,
    Or,
    Conditional,
    NotStrictlyFalse,
}

/// Types of arguments, and of the result for them.
pub(crate) struct Overload {
    /// The first parameter is the target of a method.
    pub member: bool,
    pub params: Vec<Type>,
    pub result: Type,
}

/// A function as the libraries declare it: its name, its body, and its overloads as [`signature`] reads them.
type Declaration = (&'static str, Body, &'static [&'static str]);

/// Identifiers that denote types.
pub(crate) const TYPE_NAMES: [&str; 12] = [
    "bool",
    "bytes",
    "double",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "type",
    "uint",
    "optional_type",
    "dyn",
];

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let libraries: [&[Declaration]; 12] = [
        standard::OPERATORS,
        standard::FUNCTIONS,
        times::FUNCTIONS,
        strings::FUNCTIONS,
        lists::FUNCTIONS,
        sets::FUNCTIONS,
        optional::FUNCTIONS,
        regex::FUNCTIONS,
        url::FUNCTIONS,
        quantity::FUNCTIONS,
        net::FUNCTIONS,
        semver::FUNCTIONS,
    ];
    let all = libraries.into_iter().flatten().map(|(name, body, overloads)| {
        let function = Function {
            name,
            overloads: overloads.iter().map(|s| signature::parse(s)).collect(),
            body: *body,
        };
        (*name, function)
    });
    all.collect()
});

/// The function with this name.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}
