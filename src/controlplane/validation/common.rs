//! Checks shared by several kinds: numbers, percentages, quantities and names.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show_json};
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::validation::{dns1123_subdomain, net};
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each;
use std::num::IntErrorKind;

/// Upstream's message for negative numbers (`IsNegativeErrorMsg`).
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Reports the number at `key` if it is negative.
pub(crate) fn not_negative(out: &mut ErrorList, v: &Value, key: &str, path: &FieldPath) {
    if let Some(n) = v.get(key).as_i64().filter(|n| *n < 0) {
        out.push(FieldError::invalid(&path.child(key), n, NOT_NEGATIVE));
    }
}

/// Checks an `IntOrString`: a non-negative number or a percentage.
pub(crate) fn int_or_percent(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    match v {
        // Syntax only; callers bound the percentage with `percentage_at_most_100` where upstream does.
        Value::String(s) => {
            for why in net::percent(s) {
                out.push(FieldError::invalid_enum(path, v.clone(), why));
            }
        }
        Value::Int(n) if *n < 0 => out.push(FieldError::invalid(path, *n, NOT_NEGATIVE)),
        _ => {}
    }
}

/// Reports a percentage greater than 100%.
pub(crate) fn percentage_at_most_100(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    // Silent for malformed strings: `int_or_percent` has reported them.
    if v.as_str().and_then(net::parse_percent).is_some_and(|p| p > 100) {
        out.push(FieldError::invalid(path, v.clone(), "must not be greater than 100%"));
    }
}

/// True if the `IntOrString` is zero, `0%`, or absent (`getIntOrPercentValue` upstream). Text that is no number counts
/// as zero, too; [`int_or_percent`] has reported it.
pub(crate) fn is_zero_or_absent(v: &Value) -> bool {
    match v {
        Value::Int(n) => *n == 0,
        Value::String(s) => match (net::parse_percent(s), s.parse::<i64>()) {
            // `0%` counts: rounding makes it zero for any number of replicas.
            (Some(percent), _) => percent == 0,
            (None, Ok(number)) => number == 0,
            // Go reads a number that is too large as the largest one.
            (None, Err(e)) => !matches!(e.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow),
        },
        _ => v.is_null(),
    }
}

/// Formats an object like upstream's internal Go struct, for the bad value of an error: Go's field names in
/// order. `fields` are (Go name, JSON name, printed form of an absent value).
pub(crate) fn go_struct(v: &Value, fields: &[(&str, &str, &str)]) -> String {
    let cells: Vec<String> = fields
        .iter()
        .map(|(go, key, zero)| {
            let value = v.get(key);
            // Internal types have no JSON tags, so Go marshals zero values instead of omitting them.
            let shown = if value.is_null() {
                (*zero).to_owned()
            } else {
                show_json(value)
            };
            format!("\"{go}\":{shown}")
        })
        .collect();
    format!("{{{}}}", cells.join(","))
}

/// A `NotSupported` error whose bad value is already formatted.
pub(crate) fn not_supported_raw(path: &FieldPath, shown: String, supported: &[&str]) -> FieldError {
    // The constructor would quote the value, but a struct is printed as JSON without quotes.
    let mut error = FieldError::not_supported(path, "", supported);
    error.bad_value = Some(shown);
    error
}

/// Parses a quantity. `None` if absent; malformed ones have been rejected by decoding.
pub(crate) fn quantity(v: &Value) -> Option<Quantity> {
    match v {
        Value::String(s) => Quantity::parse(s).ok(),
        // Quantities may be written as bare JSON numbers.
        Value::Int(n) => Quantity::parse(&n.to_string()).ok(),
        _ => None,
    }
}

/// True if less than zero.
pub(crate) fn is_negative(q: Quantity) -> bool {
    quantity(&Value::Int(0)).is_some_and(|zero| q < zero)
}

/// True if greater than zero.
pub(crate) fn is_positive(q: Quantity) -> bool {
    quantity(&Value::Int(0)).is_some_and(|zero| q > zero)
}

/// True for a whole number.
pub(crate) fn is_whole(q: Quantity) -> bool {
    // Milli units suffice: the API accepts nothing finer, decoding rounds up to them.
    q.milli_value() % 1000 == 0
}

/// Checks that the string at `key` (a reference's kind or name) is present and valid as a path segment.
pub(crate) fn required_segment(out: &mut ErrorList, v: &Value, key: &str, path: &FieldPath) {
    match v.str_at(&[key]) {
        "" => out.push(FieldError::required(&path.child(key), "")),
        s => invalid_each(
            out,
            &path.child(key),
            s,
            crate::apimachinery::validation::path_segment_name(s),
        ),
    }
}

/// Checks that a path is relative and has no `..`.
pub(crate) fn local_path(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.starts_with('/') {
        out.push(FieldError::invalid(at, text, "must be a relative path"));
    }
    no_backsteps(out, text, at);
}

/// Checks that no component of a path is `..`.
pub(crate) fn no_backsteps(out: &mut ErrorList, text: &str, at: &FieldPath) {
    // By component: `..data` and `a..b` are ordinary names.
    if text.split('/').any(|p| p == "..") {
        out.push(FieldError::invalid(at, text, "must not contain '..'"));
    }
}

/// Checks a CSI driver name: a DNS subdomain, ignoring case, of at most 63 characters.
pub(crate) fn csi_driver_name(out: &mut ErrorList, text: &str, at: &FieldPath) {
    if text.is_empty() {
        out.push(FieldError::required(at, ""));
        return;
    }
    // The limit of the CSI specification, below that of a DNS subdomain.
    if text.len() > 63 {
        out.push(FieldError::too_long(at, 63));
    }
    invalid_each(out, at, text, dns1123_subdomain(&text.to_lowercase()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn structs_print_go_field_names() {
        let shown = go_struct(
            &json!({"type": "X"}),
            &[("Type", "type", "\"\""), ("RollingUpdate", "rollingUpdate", "null")],
        );
        assert_eq!(shown, r#"{"Type":"X","RollingUpdate":null}"#);
    }

    #[test]
    fn amounts_are_numbers_or_percentages() {
        let errors = |v: Value| {
            let mut out = ErrorList::new();
            int_or_percent(&mut out, &v, &FieldPath::new("a"));
            percentage_at_most_100(&mut out, &v, &FieldPath::new("a"));
            aggregate(&out)
        };
        assert_eq!(
            errors(json!(-1)),
            "a: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(
            errors(json!("101%")),
            "a: Invalid value: \"101%\": must not be greater than 100%"
        );
        assert_eq!(errors(json!("5%")), "[]");
        assert_eq!(
            errors(json!("a&b")).split(": ").take(3).collect::<Vec<_>>(),
            ["a", "Invalid value", "\"a\\u0026b\""]
        );
    }

    #[test]
    fn unparsable_amounts_count_as_zero() {
        for zero in [
            json!(0),
            json!("0%"),
            json!("0"),
            json!("http"),
            json!("1Gi"),
            json!("-"),
        ] {
            assert!(is_zero_or_absent(&zero), "{zero:?}");
        }
        for amount in [json!(1), json!("5%"), json!("5"), json!("99999999999999999999")] {
            assert!(!is_zero_or_absent(&amount), "{amount:?}");
        }
    }
}
