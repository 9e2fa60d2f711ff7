//! Checks that several kinds share.

use crate::apimachinery::field::{ErrorList, FieldError, FieldPath, show};
use crate::apimachinery::quantity::Quantity;
use crate::apimachinery::validation::net;
use crate::apimachinery::value::Value;
use crate::controlplane::fields::invalid_each;

/// What a negative number is told.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// The number at `key`, where there is one, is not negative.
pub(crate) fn not_negative(out: &mut ErrorList, v: &Value, key: &str, path: &FieldPath) {
    if let Some(n) = v.get(key).as_i64().filter(|n| *n < 0) {
        out.push(FieldError::invalid(&path.child(key), n, NOT_NEGATIVE));
    }
}

/// A number that is not negative, or a percentage.
pub(crate) fn amount(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    match v {
        Value::String(s) => invalid_each(out, path, v.clone(), net::percent(s)),
        Value::Int(n) if *n < 0 => out.push(FieldError::invalid(path, *n, NOT_NEGATIVE)),
        _ => {}
    }
}

/// A percentage is at most the whole.
pub(crate) fn at_most_all(out: &mut ErrorList, v: &Value, path: &FieldPath) {
    if v.as_str().and_then(net::parse_percent).is_some_and(|p| p > 100) {
        out.push(FieldError::invalid(path, v.clone(), "must not be greater than 100%"));
    }
}

/// True where the amount is nothing: `0`, `0%`, or absent.
pub(crate) fn is_nothing(v: &Value) -> bool {
    match v {
        Value::Int(n) => *n == 0,
        Value::String(s) => net::parse_percent(s) == Some(0),
        _ => v.is_null(),
    }
}

/// A struct the way upstream prints its internal form: Go's field names in order, what is absent as `null` (or as `zero`).
pub(crate) fn internal(v: &Value, fields: &[(&str, &str, &str)]) -> String {
    let cells: Vec<String> = fields
        .iter()
        .map(|(go, key, zero)| {
            let value = v.get(key);
            let shown = if value.is_null() {
                (*zero).to_owned()
            } else {
                show(value)
            };
            format!("\"{go}\":{shown}")
        })
        .collect();
    format!("{{{}}}", cells.join(","))
}

/// An error about a struct, or an unsupported one.
pub(crate) fn not_supported_raw(path: &FieldPath, shown: String, supported: &[&str]) -> FieldError {
    let mut error = FieldError::not_supported(path, "", supported);
    error.bad_value = Some(shown);
    error
}

/// The quantity a string stands for; decoding has refused those that are none.
pub(crate) fn quantity(v: &Value) -> Option<Quantity> {
    match v {
        Value::String(s) => Quantity::parse(s).ok(),
        Value::Int(n) => Quantity::parse(&n.to_string()).ok(),
        _ => None,
    }
}

/// Below zero?
pub(crate) fn is_negative(q: Quantity) -> bool {
    quantity(&Value::Int(0)).is_some_and(|zero| q < zero)
}

/// Above zero?
pub(crate) fn is_positive(q: Quantity) -> bool {
    quantity(&Value::Int(0)).is_some_and(|zero| q > zero)
}

/// A whole number?
pub(crate) fn is_whole(q: Quantity) -> bool {
    q.milli_value() % 1000 == 0
}

/// The domain-prefixed path rule: `acme.io/foo`.
pub(crate) fn domain_path(out: &mut ErrorList, text: &str, path: &FieldPath) {
    if text.is_empty() {
        out.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = text.split_once('/').filter(|(d, r)| !d.is_empty() && !r.is_empty()) else {
        out.push(FieldError::invalid(
            path,
            text,
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ));
        return;
    };
    invalid_each(
        out,
        path,
        domain,
        crate::apimachinery::validation::dns1123_subdomain(domain),
    );
    let fine = rest
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c));
    if !fine {
        let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
        out.push(FieldError::invalid(path, rest, why));
    }
}

/// Path segments: kinds and names of references.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apimachinery::field::aggregate;
    use crate::json;

    #[test]
    fn structs_show_their_go_names() {
        let shown = internal(
            &json!({"type": "X"}),
            &[("Type", "type", "\"\""), ("RollingUpdate", "rollingUpdate", "null")],
        );
        assert_eq!(shown, r#"{"Type":"X","RollingUpdate":null}"#);
    }

    #[test]
    fn amounts_are_numbers_or_percentages() {
        let said = |v: Value| {
            let mut out = ErrorList::new();
            amount(&mut out, &v, &FieldPath::new("a"));
            at_most_all(&mut out, &v, &FieldPath::new("a"));
            aggregate(&out)
        };
        assert_eq!(
            said(json!(-1)),
            "a: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(
            said(json!("101%")),
            "a: Invalid value: \"101%\": must not be greater than 100%"
        );
        assert_eq!(said(json!("5%")), "[]");
        assert!(is_nothing(&json!("0%")) && is_nothing(&json!(0)) && !is_nothing(&json!(1)));
    }
}
