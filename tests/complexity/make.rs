//! Builds values from the schema: minimal values of a type, and variations of a value.

use crate::sites::{Step, struct_of};
use std::net::IpAddr;
use torana::api::{FreeForm, Ty, TypeDef};
use torana::apimachinery::Value;
use torana::apimachinery::value::Map;
use torana::json;

/// The minimal value of a type. `choices` are the allowed values of its field, if enumerated.
pub(crate) fn least(ty: Ty, choices: &[&str]) -> Value {
    match ty {
        Ty::String => json!(choices.first().copied().unwrap_or("a")),
        Ty::Int32 | Ty::Int64 | Ty::Float | Ty::IntOrString => json!(1),
        Ty::Bool => json!(true),
        Ty::Bytes => json!("YQ=="),
        Ty::Time => json!("2026-01-02T03:04:05Z"),
        Ty::MicroTime => json!("2026-01-02T03:04:05.000000Z"),
        Ty::Quantity => json!("1"),
        Ty::Any(FreeForm::Json) => json!("a"),
        Ty::Any(_) => Value::object(),
        Ty::SchemaOr(_) => json!({"type": "object"}),
        Ty::Struct(r) => object(r.get()),
        Ty::List(inner) => Value::Array(vec![least(*inner, choices)]),
        Ty::Map(inner) => pairs([("k".to_owned(), least(*inner, choices))]),
    }
}

/// An object with the required fields of its type.
pub(crate) fn object(def: &'static TypeDef) -> Value {
    let required = def.fields.iter().filter(|f| f.required);
    pairs(required.map(|f| (f.name.to_owned(), least(f.ty, def.enumeration(f.name)))))
}

/// An object with these members, built in one pass.
pub(crate) fn pairs(members: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(Map::from_pairs(
        members.into_iter().map(|(k, v)| (k.into(), v)).collect(),
    ))
}

/// The value at `path`. Missing values on the way are created.
pub(crate) fn reach<'v>(object: &'v mut Value, mut def: &'static TypeDef, path: &[Step]) -> &'v mut Value {
    let mut at = object;
    let mut ty = Ty::Bool;
    let mut choices: &[&str] = &[];
    for step in path {
        at = match step {
            Step::Field(name) => {
                let field = def.field(name).expect("sites are walked along the table");
                (ty, choices) = (field.ty, def.enumeration(name));
                at.make_object().entry(name)
            }
            Step::First => {
                let Ty::List(inner) = ty else {
                    unreachable!("only lists have elements")
                };
                ty = *inner;
                if at.items().is_empty() {
                    *at = Value::Array(vec![least(ty, choices)]);
                }
                &mut at.as_array_mut().expect("it was just made one")[0]
            }
            Step::Member => {
                let Ty::Map(inner) = ty else {
                    unreachable!("only maps have members")
                };
                ty = *inner;
                let members = at.make_object();
                let key = members.keys().next().unwrap_or("k").to_owned();
                members.entry(&key)
            }
        };
        if at.is_null() {
            *at = least(ty, choices);
        }
        if let Some(inner) = struct_of(ty) {
            def = inner;
        }
    }
    at
}

/// Which parts of an element differ from the next element's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variation {
    /// The identity of an element: the keys that the schema names, or fields called `name`.
    Keys,
    /// Every string and number that is not an enumerated value.
    All,
    /// Every string, replaced by one that is always invalid.
    Wrong,
}

/// The `i`-th variation of a value.
pub(crate) fn vary(value: &Value, ty: Ty, choices: &[&str], keys: &[&str], how: Variation, i: usize) -> Value {
    if let (Some(def), Value::Object(members)) = (struct_of(ty), value) {
        let named = |name: &str| match keys {
            [] => matches!(
                name,
                "name" | "key" | "ip" | "uid" | "path" | "type" | "mountPath" | "host"
            ),
            keys => keys.contains(&name),
        };
        let any = members.keys().any(named);
        let members = members.iter().map(|(name, v)| {
            let field = def.field(name);
            let v = match field {
                Some(field) if how != Variation::Keys || named(name) || !any => {
                    vary(v, field.ty, def.enumeration(name), &[], how, i)
                }
                _ => v.clone(),
            };
            (name.to_owned(), v)
        });
        return pairs(members);
    }
    match (ty, value) {
        (Ty::List(inner), Value::Array(items)) => {
            Value::Array(items.iter().map(|v| vary(v, *inner, choices, &[], how, i)).collect())
        }
        (Ty::Map(inner), Value::Object(members)) => pairs(
            members
                .iter()
                .map(|(k, v)| (k.to_owned(), vary(v, *inner, choices, &[], how, i))),
        ),
        (Ty::String, Value::String(_)) if how == Variation::Wrong => json!(format!("-!{i}\u{7f}")),
        (Ty::String, Value::String(_)) if !choices.is_empty() => value.clone(),
        (Ty::String | Ty::IntOrString, Value::String(s)) => json!(other(s, i)),
        (Ty::Int32 | Ty::Int64 | Ty::IntOrString, Value::Int(n)) => match how {
            Variation::Wrong => json!(-1 - i as i64),
            _ => json!(n + i as i64),
        },
        (Ty::Quantity, _) => match how {
            Variation::Wrong => json!(format!("-{}", i + 1)),
            _ => json!((i + 1).to_string()),
        },
        (Ty::Any(_), _) => json!({"k": (i.to_string())}),
        _ => value.clone(),
    }
}

/// The `i`-th variation of a string, in the same format if that is a common one.
fn other(s: &str, i: usize) -> String {
    let n = i as u128;
    if let Ok(ip) = s.parse::<IpAddr>() {
        return match ip {
            IpAddr::V4(ip) => std::net::Ipv4Addr::from(u32::from(ip).wrapping_add(i as u32)).to_string(),
            IpAddr::V6(ip) => std::net::Ipv6Addr::from(u128::from(ip).wrapping_add(n)).to_string(),
        };
    }
    if let Some((ip, bits)) = s.split_once('/')
        && let (Ok(IpAddr::V4(ip)), Ok(bits)) = (ip.parse(), bits.parse::<u32>())
    {
        let step = 1u32.checked_shl(32 - bits.min(32)).unwrap_or(0);
        let ip = u32::from(ip).wrapping_add(step.wrapping_mul(i as u32));
        return format!("{}/{bits}", std::net::Ipv4Addr::from(ip));
    }
    match s.parse::<u64>() {
        Ok(number) => (number + i as u64).to_string(),
        Err(_) => format!("{s}{i}"),
    }
}
