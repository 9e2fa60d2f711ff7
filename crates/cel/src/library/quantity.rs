//! Kubernetes' library of quantities: `quantity('1Gi')`, their order, sums and numbers. Parsing is left to
//! `torana_apimachinery`.

use super::{Body::Strict, Declaration};
use crate::value::{Out, Val, error, no_overload};
use torana_apimachinery::quantity::{ParseError, Quantity};

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("quantity", Strict(quantity), &["(string) Quantity"]),
    ("isQuantity", Strict(is_quantity), &["(string) bool"]),
    ("add", Strict(|a| combine(a, Quantity::plus)), ARITHMETIC),
    ("sub", Strict(|a| combine(a, Quantity::minus)), ARITHMETIC),
    (
        "isGreaterThan",
        Strict(|a| super::semver::ordered(a, std::cmp::Ordering::is_gt)),
        &["Quantity.(Quantity) bool", "Semver.(Semver) bool"],
    ),
    (
        "isLessThan",
        Strict(|a| super::semver::ordered(a, std::cmp::Ordering::is_lt)),
        &["Quantity.(Quantity) bool", "Semver.(Semver) bool"],
    ),
    (
        "compareTo",
        Strict(compare_to),
        &["Quantity.(Quantity) int", "Semver.(Semver) int"],
    ),
    ("sign", Strict(sign), &["(Quantity) int"]),
    (
        "isInteger",
        Strict(|a| integer(a).map(|n| Val::Bool(n.is_some()))),
        &["Quantity.() bool"],
    ),
    ("asInteger", Strict(as_integer), &["Quantity.() int"]),
    ("asApproximateFloat", Strict(as_float), &["Quantity.() double"]),
];

const ARITHMETIC: &[&str] = &["Quantity.(Quantity) Quantity", "Quantity.(int) Quantity"];

fn parse(s: &str) -> Result<Quantity, ParseError> {
    // Surrounding blanks, which the parser accepts, are not part of a quantity.
    if s.trim() == s {
        Quantity::parse(s)
    } else {
        Err(ParseError::Form)
    }
}

fn quantity<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    parse(s).map_or_else(|e| error(e.to_string()), |q| Ok(Val::Quantity(q.into(), false)))
}

fn is_quantity<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [Val::String(s)] = args else { return no_overload() };
    Ok(Val::Bool(parse(s).is_ok()))
}

fn combine<'a>(args: &[Val<'a>], with: fn(Quantity, Quantity) -> Quantity) -> Out<'a> {
    match args {
        // Marked as a sum, because upstream's equality does not recognise one on the right.
        [Val::Quantity(a, _), Val::Quantity(b, _)] => Ok(Val::Quantity(with(**a, **b).into(), true)),
        [Val::Quantity(a, _), Val::Int(n)] => Ok(Val::Quantity(with(**a, Quantity::from_i64(*n)).into(), true)),
        _ => no_overload(),
    }
}

fn compare_to<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    super::semver::order(args).map(|o| Val::Int(o as i64))
}

fn sign<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::Quantity(q, _)] => Ok(Val::Int(i64::from(q.signum()))),
        _ => no_overload(),
    }
}

/// The quantity as an integer, if upstream has it as one.
fn integer(args: &[Val<'_>]) -> Result<Option<i64>, crate::value::Fail> {
    let [Val::Quantity(q, _)] = args else {
        return no_overload();
    };
    Ok(q.as_i64())
}

fn as_integer<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    integer(args)?.map_or_else(|| error("cannot convert value to integer"), |n| Ok(Val::Int(n)))
}

fn as_float<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::Quantity(q, _)] => Ok(Val::Double(q.nanos() as f64 / 1e9)),
        _ => no_overload(),
    }
}
