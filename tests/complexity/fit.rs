//! Makes an object valid by following the causes in the server's refusal: a missing field is filled in, a
//! forbidden one removed, an unsupported value replaced by a supported one. That yields valid objects for
//! most kinds without hand-written examples.

use crate::make::least;
use crate::sites::struct_of;
use std::collections::HashMap;
use torana::api::{Ty, TypeDef};
use torana::apimachinery::Value;
use torana::json;

/// Strings in the formats that validation commonly requires.
const TEXTS: [&str; 15] = [
    "a",
    "example.com/a",
    "Exists",
    "10.1.2.3",
    "10.1.0.0/16",
    "/a",
    "a.example.com",
    "1",
    "https://a.example.com",
    "*",
    "A",
    "v1",
    "true",
    "0 0 * * *",
    "",
];

/// The maximum number of refusals to act on.
const ROUNDS: usize = 14;

/// Calls `refusal` on the object (null means valid) and corrects the object until it is valid or no
/// correction helps. Returns whether it is valid. The field `keep` must stay.
pub(crate) fn fit(def: &'static TypeDef, object: &mut Value, keep: &str, refusal: &dyn Fn(&Value) -> Value) -> bool {
    let mut tried: HashMap<String, usize> = HashMap::new();
    for _ in 0..ROUNDS {
        let status = refusal(object);
        if status.is_null() {
            return true;
        }
        let mut changed = false;
        for cause in status.at(&["details", "causes"]).items() {
            let field = cause.str_at(&["field"]);
            let attempt = tried.entry(field.to_owned()).or_default();
            changed |= heed(def, object, field, cause, *attempt, keep);
            *attempt += 1;
        }
        if !changed {
            return false;
        }
    }
    refusal(object).is_null()
}

fn heed(def: &'static TypeDef, object: &mut Value, field: &str, cause: &Value, attempt: usize, keep: &str) -> bool {
    let Some((parent, last)) = steps(field).split_last().map(|(l, p)| (p.to_vec(), l.clone())) else {
        return false;
    };
    let Some((owner, ty, choices)) = typed(def, &parent, &last) else {
        return false;
    };
    let Some(at) = lookup(object, &parent) else {
        return false;
    };
    let message = cause.str_at(&["message"]);
    if let Some((_, values)) = message.split_once("supported values: ") {
        let values: Vec<&str> = values.split('"').skip(1).step_by(2).collect();
        return match values.get(attempt % values.len().max(1)) {
            Some(value) => put(at, &last, json!(*value)),
            None => false,
        };
    }
    if cause.str_at(&["reason"]) == "FieldValueForbidden" {
        // The forbidden field is the one under test, so whatever conflicts with it has to change instead.
        return match keep.starts_with(field) {
            true => make_way(at, owner, &last, attempt),
            false => remove(at, &last),
        };
    }
    if let Value::Object(members) = &mut *at
        && owner.field(&last).is_none()
        && let Some(value) = members.remove(&last)
    {
        // The field is a map key, which is renamed.
        let key = ["example.com/k", "cpu", "storage", "k.k"][attempt % 4];
        return put(at, key, value);
    }
    if let Some(inner) = struct_of(ty) {
        // An object is incomplete: add its next missing member.
        let there = member(at, &last);
        let missing = inner.fields.iter().filter(|f| there.get(f.name).is_null());
        let Some(next) = missing.clone().nth(attempt % missing.count().max(1)) else {
            return false;
        };
        let mut whole = there.clone();
        whole.set(&[next.name], least(next.ty, inner.enumeration(next.name)));
        return put(at, &last, whole);
    }
    let value = match ty {
        Ty::String if !choices.is_empty() => json!(choices[attempt % choices.len()]),
        Ty::String => json!(TEXTS[attempt % TEXTS.len()]),
        Ty::Int32 | Ty::Int64 | Ty::Float | Ty::IntOrString => json!([1, 0, 80, 10, 600][attempt % 5]),
        Ty::Quantity => json!(["1", "0", "1Gi"][attempt % 3]),
        Ty::Bool => json!(attempt.is_multiple_of(2)),
        Ty::List(Ty::String) => json!([(TEXTS[attempt % TEXTS.len()])]),
        _ if keep.starts_with(field) && !member(at, &last).is_empty_value() => return false,
        ty => least(ty, choices),
    };
    put(at, &last, value)
}

/// Removes optional objects beside `name`, and replaces an operator or type by another one, to resolve a
/// conflict with `name`.
fn make_way(at: &mut Value, owner: &'static TypeDef, name: &str, attempt: usize) -> bool {
    const OPERATORS: [&str; 5] = ["In", "Exists", "NotIn", "Equal", "DoesNotExist"];
    let Value::Object(members) = at else { return false };
    let before = members.len();
    let is_other = |key: &str| !key.eq_ignore_ascii_case(name);
    let is_object = |key: &str| {
        owner
            .field(key)
            .is_some_and(|f| !f.required && struct_of(f.ty).is_some())
    };
    members.retain(|key, _| !(is_other(key) && is_object(key)));
    let mut changed = members.len() < before;
    for key in ["operator", "type"] {
        let choices = match owner.enumeration(key) {
            [] => &OPERATORS[..],
            choices => choices,
        };
        if members.contains_key(key) && is_other(key) {
            members.insert(key, choices[attempt % choices.len()]);
            changed = true;
        }
    }
    changed
}

/// `a.b[0].c[k]` → a, b, 0, c, k.
fn steps(field: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(inner) = rest.strip_prefix('[') {
            let (key, after) = inner.split_once(']').unwrap_or((inner, ""));
            out.push(key.to_owned());
            rest = after;
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                break;
            }
            out.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    }
    out
}

type Typed = (&'static TypeDef, Ty, &'static [&'static str]);

fn typed(def: &'static TypeDef, parent: &[String], last: &str) -> Option<Typed> {
    let (mut owner, mut ty, mut choices): Typed = (def, Ty::Bool, &[]);
    let mut inside = Some(def);
    for step in parent.iter().map(String::as_str).chain([last]) {
        match (inside, ty) {
            (Some(def), _) => {
                owner = def;
                ty = def.field(step)?.ty;
                choices = def.enumeration(step);
            }
            (None, Ty::List(inner) | Ty::Map(inner)) => ty = *inner,
            _ => return None,
        }
        inside = struct_of(ty);
    }
    Some((owner, ty, choices))
}

fn lookup<'v>(object: &'v mut Value, steps: &[String]) -> Option<&'v mut Value> {
    steps.iter().try_fold(object, |at, step| match at {
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        Value::Object(members) => Some(members.entry(step)),
        Value::Null => {
            *at = Value::object();
            Some(at.make_object().entry(step))
        }
        _ => None,
    })
}

fn member(at: &Value, last: &str) -> Value {
    match at {
        Value::Array(items) => last
            .parse()
            .ok()
            .and_then(|i: usize| items.get(i))
            .cloned()
            .unwrap_or_default(),
        at => at.get(last).clone(),
    }
}

fn put(at: &mut Value, last: &str, value: Value) -> bool {
    match at {
        Value::Array(items) => match last.parse().ok().and_then(|i: usize| items.get_mut(i)) {
            Some(slot) if *slot != value => *slot = value,
            _ => return false,
        },
        at if *at.get(last) != value => at.set(&[last], value),
        _ => return false,
    }
    true
}

fn remove(at: &mut Value, last: &str) -> bool {
    match at {
        Value::Array(items) => match last.parse::<usize>() {
            Ok(i) if i < items.len() => drop(items.remove(i)),
            _ => return false,
        },
        at => return at.unset(&[last]).is_some(),
    }
    true
}
