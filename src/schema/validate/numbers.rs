//! `multipleOf`, `minimum`, `maximum` and the ranges of numeric formats. For integer values the constraints
//! are truncated to integers, as upstream.

use super::{Named, Outcome, Validator};
use crate::apimachinery::field::{FieldError, go_float};
use crate::apimachinery::value::Value;
use crate::schema::path::At;
use crate::schema::{Bound, Checks, Node, Type};

/// True for floats that upstream accepts as integers: whole ones of up to 53 bits, with a relative error of
/// 1e-9.
pub(super) fn is_json_integer(f: f64) -> bool {
    // 2^53 - 1: larger floats cannot represent every integer.
    const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_991.0;
    if f.abs() > MAX_SAFE_INTEGER {
        return false;
    }
    let whole = f.round();
    // The relative error is upstream's tolerance for products of decimal fractions.
    f == whole || whole != 0.0 && (f - whole).abs() < 1e-9 * whole.abs()
}

/// The text of a number as Go prints it.
fn format_number(v: &Value) -> String {
    match v {
        Value::Int(i) => i.to_string(),
        other => go_float(other.as_f64().unwrap_or_default()),
    }
}

fn invalid(named: &Named, v: &Value, detail: String) -> FieldError {
    FieldError::invalid_raw(&named.field, format_number(v), detail)
}

/// The type and format of numbers that a schema has, unless it has several types.
struct Range<'a> {
    ty: Option<Type>,
    format: &'a str,
}

impl Range<'_> {
    fn holds(&self, v: &Value) -> bool {
        // int32 is the only format that narrows integers.
        match (self.ty, v) {
            (Some(Type::Integer), v) => {
                let (low, high) = match self.format {
                    "int32" => (i64::from(i32::MIN), i64::from(i32::MAX)),
                    _ => (i64::MIN, i64::MAX),
                };
                // A float above the largest i64 saturates to it, so the upper end needs a comparison of
                // floats.
                let whole = |f: f64| {
                    f.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&f)
                };
                match v {
                    Value::Int(i) => (low..=high).contains(i),
                    other => other
                        .as_f64()
                        .is_some_and(|f| whole(f) && (low..=high).contains(&(f as i64))),
                }
            }
            // `float` is checked by conversion: what overflows to infinity is out of range.
            (Some(Type::Number), v) if self.format == "float" => v.as_f64().is_some_and(|f| (f as f32).is_finite()),
            _ => true,
        }
    }

    fn error(&self, what: &str, path: &str) -> String {
        let ty = self.ty.map_or("", Type::name);
        match self.format {
            "" => format!("{what} value must be of type {ty} (default format) in {path}"),
            format => format!("{what} value must be of type {ty} with format {format} in {path}"),
        }
    }
}

impl Validator<'_> {
    /// Integers have a range even in a schema without constraints.
    pub(super) fn numbers(&mut self, node: &Node, c: Option<&Checks>, v: &Value, at: &At<'_>, out: &mut Outcome) {
        // The types of int-or-string are not applied in defaults.
        let single = !node.int_or_string || self.is_default;
        let ty = node.ty.filter(|t| single && t.is_numeric());
        let format = c
            .and_then(|c| c.format.as_ref())
            .filter(|f| ty.is_some() && !f.is_text());
        let range = Range {
            ty,
            format: format.map_or("", |f| f.spelling()),
        };
        if !range.holds(v) {
            out.push_with(|| self.without_field(range.error("Checked", self.name(at).text.as_str())));
        }
        let Some(c) = c else { return };
        // A constraint outside of the range of the type is an error too, and is then compared as a float.
        let constraint = |limit: f64, what: &str, out: &mut Outcome| -> bool {
            let holds = range.holds(&Value::Float(limit));
            if !holds {
                out.push_with(|| self.without_field(range.error(what, self.name(at).text.as_str())));
            }
            // An integer constraint on an integer value is compared exactly; anything else as floats.
            holds && matches!(v, Value::Int(_))
        };
        if let Some(factor) = c.multiple_of {
            let whole = constraint(factor, "MultipleOf", out);
            if let Some(fault) = multiple_of(v, factor, whole) {
                out.push_with(|| fault.error(&self.name(at)));
            }
        }
        for (bound, what, is_minimum) in [
            (c.minimum, "Minimum boundary", true),
            (c.maximum, "Maximum boundary", false),
        ] {
            let Some(bound) = bound else { continue };
            let whole = constraint(bound.at, what, out);
            if let Some(fault) = beyond(v, bound, is_minimum, whole) {
                out.push_with(|| fault.error(&self.name(at)));
            }
        }
    }
}

/// A violated constraint; its messages are only built if it is reported.
enum Fault {
    /// The factor of `multipleOf`, which is not positive.
    Factor(Value),
    /// The value, and the factor that it is not a multiple of.
    NotMultiple(Value, Value),
    /// The value, the kind of bound ("less than" and so on), and the limit.
    Beyond(Value, &'static str, Value),
}

impl Fault {
    fn error(&self, named: &Named) -> FieldError {
        let n = named.text.as_str();
        match self {
            Self::Factor(factor) => {
                let text = format_number(factor);
                let detail = format!("factor MultipleOf declared for {n} must be positive: {text}");
                FieldError::invalid_raw(&named.field, text, detail)
            }
            Self::NotMultiple(v, factor) => {
                let detail = format!("{n} in body should be a multiple of {}", format_number(factor));
                invalid(named, v, detail)
            }
            Self::Beyond(v, than, limit) => {
                let detail = format!("{n} in body should be {than} {}", format_number(limit));
                invalid(named, v, detail)
            }
        }
    }
}

fn multiple_of(v: &Value, factor: f64, whole: bool) -> Option<Fault> {
    let factor = if whole {
        Value::Int(factor as i64)
    } else {
        Value::Float(factor)
    };
    let (holds, positive, v) = match (&factor, v) {
        // A factor that is not positive is reported instead of divided by.
        (Value::Int(f), Value::Int(i)) => (*f <= 0 || i % f == 0, *f > 0, v.clone()),
        (factor, v) => {
            let (f, x) = (factor.as_f64()?, v.as_f64()?);
            // Small factors are inverted first, as upstream does to reduce the error of the division.
            let quotient = if f < 1.0 { 1.0 / f * x } else { x / f };
            (is_json_integer(quotient), f > 0.0, Value::Float(x))
        }
    };
    if !positive {
        return Some(Fault::Factor(factor));
    }
    (!holds).then_some(Fault::NotMultiple(v, factor))
}

fn beyond(v: &Value, bound: Bound, is_minimum: bool, whole: bool) -> Option<Fault> {
    use std::cmp::Ordering;
    let (order, limit, v) = match v {
        Value::Int(i) if whole => {
            let limit = bound.at as i64;
            (i.cmp(&limit), Value::Int(limit), v.clone())
        }
        other => {
            let x = other.as_f64()?;
            // NaN cannot occur, so the comparison always has a result.
            (x.partial_cmp(&bound.at)?, Value::Float(bound.at), Value::Float(x))
        }
    };
    let (wrong, than) = match is_minimum {
        true => (Ordering::Less, ["greater than", "greater than or equal to"]),
        false => (Ordering::Greater, ["less than", "less than or equal to"]),
    };
    if order != wrong && !(bound.exclusive && order == Ordering::Equal) {
        return None;
    }
    Some(Fault::Beyond(v, than[usize::from(!bound.exclusive)], limit))
}
