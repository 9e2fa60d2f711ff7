//! Validates values, with the messages of upstream's validator (`k8s.io/kube-openapi/pkg/validation/validate`).

use super::{Additional, Bound, Checks, ListKind, Node, Type};
use crate::apimachinery::codec::json;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::value::{Map, Str, Value};
use crate::interrupt::checkpoint;
use std::collections::HashMap;

/// The errors in `v`. Locations whose value is the same as in `old` are skipped (ratcheting).
pub(super) fn validate(node: &Node, v: &Value, old: Option<&Value>) -> ErrorList {
    let mut out = Outcome::default();
    check(node, v, old, &FieldPath::default(), &mut out);
    out.errors
}

#[derive(Default)]
struct Outcome {
    errors: ErrorList,
    /// Number of checks made. If several branches fail, the errors of the one with the most checks are reported.
    checks: usize,
}

fn check(node: &Node, v: &Value, old: Option<&Value>, path: &FieldPath, out: &mut Outcome) {
    if old == Some(v) {
        return;
    }
    checkpoint();
    out.checks += 1;
    types(node, v, path, out);
    let checks = node.checks.as_deref();
    if let Some(c) = checks
        && !v.is_null()
    {
        combinators(c, v, path, out);
        match v {
            Value::String(s) => string(c, s, path, out),
            Value::Int(_) | Value::Float(_) => numbers(c, node.ty, v, path, out),
            Value::Array(a) => counts(c.min_items, c.max_items, a.len(), "items", path, out),
            _ => {}
        }
    }
    if let Value::Array(items) = v {
        elements(node, items, old, path, out);
    }
    if let Some(c) = checks {
        enumeration(c, v, path, out);
    }
    if let Value::Object(m) = v {
        if let Some(c) = checks {
            counts(c.min_properties, c.max_properties, m.len(), "properties", path, out);
        }
        members(node, m, old, path, out);
    }
}

fn type_name(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Float(f) if f.fract() == 0.0 => "integer",
        Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn types(node: &Node, v: &Value, path: &FieldPath, out: &mut Outcome) {
    if v.is_null() && node.nullable {
        return;
    }
    let actual = type_name(v);
    let expected = match node.ty {
        _ if node.int_or_string => "integer,string",
        Some(t) => t.name(),
        None => return,
    };
    let fits = expected.split(',').any(|e| e == actual) || expected == "number" && actual == "integer";
    if fits {
        return;
    }
    let format = node.checks.as_ref().and_then(|c| c.format);
    let (expected, actual) = match (format, v) {
        (Some(f), Value::Int(_)) => (f.name(), "int64"),
        (Some(f), Value::Float(_)) => (f.name(), "float64"),
        (Some(f), Value::Bool(_) | Value::Object(_)) => (f.name(), ""),
        _ => (expected, actual),
    };
    let detail = format!("{} in body must be of type {expected}: {actual:?}", path.as_str());
    out.errors.push(FieldError::type_invalid(path, actual, detail));
    if node.ty == Some(Type::Integer) && matches!(v, Value::Float(_)) {
        let format = format.map_or("(default format)".to_owned(), |f| format!("with format {}", f.name()));
        out.errors.push(without_path(format!(
            "Checked value must be of type integer {format} in {}",
            path.as_str()
        )));
    }
}

/// An error without a field path, of which upstream has some.
fn without_path(detail: String) -> FieldError {
    FieldError::invalid(&FieldPath::default(), "", detail)
}

fn combinators(c: &Checks, v: &Value, path: &FieldPath, out: &mut Outcome) {
    let n = path.as_str();
    let try_all = |branches: &[Node]| -> Vec<Outcome> {
        let tried = branches.iter().map(|b| {
            let mut o = Outcome::default();
            check(b, v, None, path, &mut o);
            o
        });
        tried.collect()
    };
    let best = |tried: Vec<Outcome>| {
        let mut best: Option<Outcome> = None;
        for o in tried {
            if best.as_ref().is_none_or(|b| o.checks > b.checks) {
                best = Some(o);
            }
        }
        best.map(|b| b.errors).unwrap_or_default()
    };
    if !c.any_of.is_empty() {
        let tried = try_all(&c.any_of);
        if !tried.iter().any(|o| o.errors.is_empty()) {
            out.errors
                .push(without_path(format!("{n:?} must validate at least one schema (anyOf)")));
            out.errors.extend(best(tried));
        }
    }
    if !c.one_of.is_empty() {
        let tried = try_all(&c.one_of);
        let valid = tried.iter().filter(|o| o.errors.is_empty()).count();
        let text = format!("{n:?} must validate one and only one schema (oneOf).");
        if valid == 0 {
            out.errors.push(without_path(format!("{text} Found none valid")));
            out.errors.extend(best(tried));
        } else if valid > 1 {
            out.errors
                .push(without_path(format!("{text} Found {valid} valid alternatives")));
        }
    }
    if !c.all_of.is_empty() {
        let tried = try_all(&c.all_of);
        let failed = tried.iter().filter(|o| !o.errors.is_empty()).count();
        let all = tried.len();
        out.errors.extend(tried.into_iter().flat_map(|o| o.errors));
        if failed > 0 {
            let none = if failed == all { ". None validated" } else { "" };
            out.errors.push(without_path(format!(
                "{n:?} must validate all the schemas (allOf){none}"
            )));
        }
    }
    if let Some(not) = &c.not {
        let mut o = Outcome::default();
        check(not, v, None, path, &mut o);
        if o.errors.is_empty() {
            out.errors
                .push(without_path(format!("{n:?} must not validate the schema (not)")));
        }
    }
}

fn string(c: &Checks, s: &str, path: &FieldPath, out: &mut Outcome) {
    out.checks += 1;
    let n = path.as_str();
    let length = || s.chars().count();
    if let Some(max) = c.max_length.filter(|m| length() > *m) {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        let mut error = FieldError::too_long(path, -1);
        error.detail = format!("may not be more than {max} {bytes}");
        out.errors.push(error);
    } else if let Some(min) = c.min_length.filter(|m| length() < *m) {
        let detail = format!("{n} in body should be at least {min} chars long");
        out.errors.push(FieldError::invalid(path, s, detail));
    } else if let Some(p) = c.pattern.as_ref().filter(|p| !p.is_match(s)) {
        let detail = format!("{n} in body should match '{}'", p.source());
        out.errors.push(FieldError::invalid(path, s, detail));
    }
    if let Some(f) = c.format.filter(|f| !f.matches(s)) {
        let quoted = crate::apimachinery::field::quote(s);
        let detail = format!("{n} in body must be of type {}: {quoted}", f.name());
        out.errors.push(FieldError::type_invalid(path, s, detail));
    }
}

/// A bound as Go prints it. Next to an integer value its fraction is truncated, as upstream.
fn shown(at: f64, beside_integer: bool) -> String {
    let at = if beside_integer { at.trunc() } else { at };
    json::to_string(&Value::Float(at))
}

fn numbers(c: &Checks, ty: Option<Type>, v: &Value, path: &FieldPath, out: &mut Outcome) {
    out.checks += 1;
    let n = path.as_str();
    let x = v.as_f64().unwrap_or_default();
    let whole = matches!(v, Value::Int(_));
    let mut say = |detail: String| out.errors.push(FieldError::invalid(path, v.clone(), detail));
    if let Some(m) = c.multiple_of {
        let quotient = x / m;
        if quotient.fract() != 0.0 {
            say(format!("{n} in body should be a multiple of {}", shown(m, false)));
        }
    }
    let cut = |b: Bound| if whole { b.at.trunc() } else { b.at };
    if let Some(b) = c.minimum
        && (x < cut(b) || b.exclusive && x == cut(b))
    {
        let than = if b.exclusive {
            "greater than"
        } else {
            "greater than or equal to"
        };
        say(format!("{n} in body should be {than} {}", shown(b.at, whole)));
    }
    if let Some(b) = c.maximum
        && (x > cut(b) || b.exclusive && x == cut(b))
    {
        let than = if b.exclusive {
            "less than"
        } else {
            "less than or equal to"
        };
        say(format!("{n} in body should be {than} {}", shown(b.at, whole)));
    }
    if let (Some(f), Some(t)) = (c.format, ty)
        && x.fract() == 0.0
        && !f.holds(x)
    {
        let t = t.name();
        out.errors.push(without_path(format!(
            "Checked value must be of type {t} with format {} in {n}",
            f.name()
        )));
    }
}

fn counts(min: Option<usize>, max: Option<usize>, len: usize, what: &str, path: &FieldPath, out: &mut Outcome) {
    if let Some(min) = min.filter(|m| len < *m) {
        let detail = format!("{} in body should have at least {min} {what}", path.as_str());
        out.errors.push(FieldError::invalid(path, len as i64, detail));
    }
    if let Some(max) = max.filter(|m| len > *m) {
        out.errors.push(FieldError::too_many(path, len, max));
    }
}

/// Equality in which integers and floats with the same value are equal.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(x), Some(y)) => x == y,
        _ => a == b,
    }
}

fn enumeration(c: &Checks, v: &Value, path: &FieldPath, out: &mut Outcome) {
    if c.enumeration.is_empty() || c.enumeration.iter().any(|e| same(e, v)) {
        return;
    }
    let texts: Vec<String> = c
        .enumeration
        .iter()
        .map(|e| e.as_str().map_or_else(|| json::to_string(e), str::to_owned))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    out.errors.push(FieldError::not_supported(path, v.clone(), &texts));
}

fn elements(node: &Node, items: &[Value], old: Option<&Value>, path: &FieldPath, out: &mut Outcome) {
    let Some(of) = &node.items else { return };
    // Only the items of map lists can be matched with old ones, by their keys; of duplicates the first one counts.
    let keys: &[Str] = match &node.list {
        ListKind::Map(keys) => keys,
        _ => &[],
    };
    let key_of = |item: &'_ Value| -> Vec<Value> { keys.iter().map(|k| item.get(k).clone()).collect() };
    let mut before: HashMap<Vec<Value>, &Value> = HashMap::new();
    if matches!(node.list, ListKind::Map(_)) {
        for o in old.map_or(&[][..], Value::items) {
            before.entry(key_of(o)).or_insert(o);
        }
    }
    for (i, item) in items.iter().enumerate() {
        let old = match before.is_empty() {
            true => None,
            false => before.get(&key_of(item)).copied(),
        };
        check(of, item, old, &path.index(i), out);
    }
}

fn members(node: &Node, m: &Map, old: Option<&Value>, path: &FieldPath, out: &mut Outcome) {
    out.checks += 1;
    for (key, v) in m.iter() {
        let old = old.and_then(Value::as_object).and_then(|o| o.get(key));
        match (node.member(key), &node.additional) {
            (Some(schema), _) => check(schema, v, old, &path.child(key), out),
            (None, Additional::Any(false)) => {
                let detail = format!("{} in body is a forbidden property", path.child(key).as_str());
                out.errors.push(FieldError::invalid(path, key, detail));
            }
            _ => {}
        }
    }
    for name in node.required.iter().filter(|n| !m.contains_key(n)) {
        out.errors.push(FieldError::required(&path.child(name), ""));
    }
}
