//! The functions. Each library lists its functions with their overloads as text; [`function`] finds them by
//! name.

mod authorizer;
mod format;
mod lists;
mod net;
mod optional;
mod patch;
pub(crate) mod printf;
mod quantity;
pub(crate) mod regex;
mod semver;
mod sets;
mod signature;
mod standard;
mod strings;
mod times;
mod url;

pub(crate) use lists::sum_of;
pub(crate) use standard::{element, format_value, key, no_index};

use crate::Environment;
use crate::types::Type;
use crate::value::net::Net;
use crate::value::{Fail, NO_OVERLOAD, Out, Text, Val};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Evaluates a call; may take its arguments.
pub(crate) type Run = for<'a, 'x> fn(&'x mut [Val<'a>]) -> Out<'a>;

/// A function: its name, its overloads and its implementation.
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
    /// `or` and `orValue` of optionals, whose argument is evaluated only if there is no value. True for
    /// `orValue`.
    Alternative {
        value: bool,
    },
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

/// The built-in type of this name.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "type" => Type::Type(Type::Dyn.into()),
        "uint" => Type::Uint,
        "optional_type" => Type::optional(Type::Dyn),
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        _ => return None,
    })
}

// Built once per process: parsing the signatures takes longer than most expressions.
static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let libraries: [&[Declaration]; 16] = [
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
        format::FUNCTIONS,
        authorizer::FUNCTIONS,
        patch::FUNCTIONS,
        printf::FUNCTIONS,
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

/// The function with this name; that of JSON patches only where expressions construct objects.
pub(crate) fn function(name: &str, env: &Environment) -> Option<&'static Function> {
    FUNCTIONS
        .get(name)
        .filter(|f| env.constructs_objects || f.name != "jsonpatch.escapeKey")
}

impl Function {
    /// True for conversions between the language's types, which are folded for constants.
    pub(crate) fn converts(&self) -> bool {
        matches!(
            self.name,
            "bool" | "bytes" | "double" | "dyn" | "duration" | "int" | "string" | "timestamp" | "type" | "uint"
        )
    }
}

/// The function that a call invokes.
#[derive(Clone, Copy)]
pub(crate) struct Callee {
    pub function: &'static Function,
    /// True for a method; false for a function whose qualified name looks like one.
    pub member: bool,
    /// A bit for each overload that the types of the arguments allow.
    pub overloads: u64,
}

impl Callee {
    /// The overloads that the types of the arguments allow.
    pub(crate) fn allowed(&self) -> impl Iterator<Item = &'static Overload> {
        let mask = self.overloads;
        let all = self.function.overloads.iter().enumerate();
        all.filter(move |(i, _)| mask & (1 << i) != 0).map(|(_, o)| o)
    }

    /// The overload, if the types of the arguments allow just one.
    pub(crate) fn overload(&self) -> Option<&'static Overload> {
        let mut allowed = self.allowed();
        // More than one leaves the choice to run time.
        allowed.next().filter(|_| allowed.next().is_none())
    }
}

/// cel-go's message for arguments that no overload accepts. It is shorter if the left operand's type
/// implements the operator, or receives calls (`traits.Receiver`).
pub(crate) fn no_overload_text(function: &'static str, args: &[Val<'_>]) -> std::borrow::Cow<'static, str> {
    let number = |v: &Val<'_>| matches!(v, Val::Int(_) | Val::Uint(_) | Val::Double(_));
    let time = |v: &Val<'_>| matches!(v, Val::Duration(_) | Val::Timestamp(_));
    let text = |v: &Val<'_>| matches!(v, Val::String(_) | Val::Bytes(_));
    // Whether the left operand's type implements the operator in cel-go, which decides the wording.
    let has = args.first().is_some_and(|v| match function {
        "_+_" => number(v) || time(v) || text(v) || matches!(v, Val::List(_)),
        "_-_" => number(v) || time(v),
        "_*_" | "_/_" => number(v),
        "_%_" => matches!(v, Val::Int(_) | Val::Uint(_)),
        "_<_" | "_<=_" | "_>_" | "_>=_" => number(v) || time(v) || text(v) || matches!(v, Val::Bool(_)),
        // The first element determines the overload.
        "isSorted" | "max" | "min" => first_of(v).is_some_and(|v| lists::is_ordered(&v)),
        "sum" => first_of(v).is_some_and(|v| number(&v) || matches!(v, Val::Duration(_))),
        "!_" | "_==_" | "@in" | "contains" | "endsWith" | "matches" | "startsWith" => true,
        // A string that is not an address.
        "containsIP" => matches!(args, [Val::Net(Net::Cidr(..)), Val::String(_)]),
        _ => false,
    });
    // These require a trait of the type, not a type.
    let by_trait = function.starts_with(['_', '-']) || matches!(function, "size" | "sort");
    let answers = args.first().is_some_and(|v| time(v) || matches!(v, Val::String(_)));
    if has || (by_trait && answers) {
        return NO_OVERLOAD.into();
    }
    if by_trait {
        return format!("no such overload: {function}").into();
    }
    let types: Vec<&str> = args.iter().map(Val::type_name).collect();
    if let ("flatten", [list, depth @ ..]) = (function, args) {
        let depth = depth.first().map_or("", Val::type_name);
        return format!("no such overload: {}.flatten({depth})", list.full_type_name()).into();
    }
    format!("no such overload: {function}({})", types.join(", ")).into()
}

fn first_of<'a>(list: &Val<'a>) -> Option<Val<'a>> {
    let Val::List(list) = list else { return None };
    list.iter().next()?.ok()
}

/// The fields of an object by their names in expressions, for expressions that see it as `dyn`.
pub(crate) fn object_entries<'a>(object: &Val<'a>) -> Result<Vec<(Val<'a>, Val<'a>)>, Fail> {
    let Val::Object(m, of) = object else {
        return Ok(Vec::new());
    };
    // Absent fields are left out, as they are from a map of the input.
    let present = of.fields().iter().filter_map(|f| Some((f, m.get(&f.key)?)));
    let pair = |(f, v): (&'a crate::Field, &'a torana_apimachinery::Value)| {
        Ok((Val::String(Text::Borrowed(&f.name)), Val::of(v, &f.schema)?))
    };
    present.map(pair).collect()
}
