//! Quantities that a document has as numbers. Go parses their text; the tree has only their value, which may lack
//! digits and the exponent.
//!
//! Start at [`quantities_as_written`] for JSON, and at [`quantities_of`] for YAML, whose numbers are converted before
//! they are parsed.

use super::explain::unquoted;
use crate::{Ty, TypeDef};
use std::convert::Infallible;
use torana_apimachinery::codec::json::text::TextReader;
use torana_apimachinery::interrupt::pause;
use torana_apimachinery::value::Value;

/// Replaces quantities that are not integers of 64 bits by their text in `json`, the document of type `def` that `v`
/// was decoded from.
///
/// ```
/// use torana_apimachinery::{codec, json};
/// use torana_kube_schema::{by_gvk, decode::quantities_as_written};
///
/// let quota = by_gvk("", "v1", "ResourceQuota").expect("a built-in kind");
/// let text = br#"{"spec": {"hard": {"cpu": 9223372036854775808}}}"#;
/// let mut object = codec::json::decode(text).expect("it is JSON");
/// quantities_as_written(quota, text, &mut object);
/// assert_eq!(object, json!({"spec": {"hard": {"cpu": "9223372036854775808"}}}));
/// ```
pub fn quantities_as_written(def: &'static TypeDef, json: &[u8], v: &mut Value) {
    // Nearly all documents have none, and this walk needs no types.
    if has_float(v) {
        let json = String::from_utf8_lossy(json);
        object(def, &mut TextReader::new(&json), v);
    }
}

/// Whether the tree has numbers whose text may say more than their value.
pub fn has_float(v: &Value) -> bool {
    pause();
    match v {
        Value::Float(_) => true,
        Value::Array(items) => items.iter().any(has_float),
        Value::Object(map) => map.values().any(has_float),
        _ => false,
    }
}

/// Replaces quantities in `v`, an object of type `def`, that are numbers there and strings in `exact`, the same document.
///
/// ```
/// use torana_apimachinery::{codec::yaml, json};
/// use torana_kube_schema::{by_gvk, decode::quantities_of};
///
/// let quota = by_gvk("", "v1", "ResourceQuota").expect("a built-in kind");
/// let text = b"spec: {hard: {cpu: 9223372036854775809}}";
/// let mut object = yaml::decode(text).expect("it is YAML");
/// let exact = yaml::with_digits(text, &object).expect("there is a large number");
/// quantities_of(quota, &exact, &mut object);
/// assert_eq!(object, json!({"spec": {"hard": {"cpu": "9223372036854775809"}}}));
/// ```
pub fn quantities_of(def: &'static TypeDef, exact: &Value, v: &mut Value) {
    let Value::Object(map) = v else { return };
    for (key, v) in map.iter_mut() {
        if let Some(field) = def.field(key) {
            take_quantities(field.ty, exact.get(key), v);
        }
    }
}

fn take_quantities(ty: Ty, exact: &Value, v: &mut Value) {
    pause();
    match (ty, v) {
        (Ty::Struct(def), v) => quantities_of(def.get(), exact, v),
        (Ty::Map(t), Value::Object(map)) => {
            for (key, v) in map.iter_mut() {
                take_quantities(*t, exact.get(key), v);
            }
        }
        (Ty::List(t), Value::Array(items)) => {
            // By position: nothing is added to or removed from lists between the two decodes.
            for (v, exact) in items.iter_mut().zip(exact.items()) {
                take_quantities(*t, exact, v);
            }
        }
        (Ty::Quantity, v) if matches!((&*v, exact), (Value::Float(_), Value::String(_))) => *v = exact.clone(),
        _ => {}
    }
}

fn object(def: &'static TypeDef, r: &mut TextReader<'_>, v: &mut Value) {
    members(r, v, |key| def.field(key).map(|field| field.ty));
}

/// The members of the object here; `ty` is the type of the one with this name.
fn members(r: &mut TextReader<'_>, v: &mut Value, ty: impl Fn(&str) -> Option<Ty>) {
    let Ok(()) = r.members(|r, key| {
        let key = unquoted(key);
        match (ty(&key), v.as_object_mut().and_then(|map| map.get_mut(&key))) {
            (Some(ty), Some(v)) => value(ty, r, v),
            _ => {
                r.skip();
            }
        }
        Ok::<(), Infallible>(())
    });
}

fn value(ty: Ty, r: &mut TextReader<'_>, v: &mut Value) {
    pause();
    match (ty, r.peek()) {
        (Ty::Struct(def), Some(b'{')) => object(def.get(), r, v),
        (Ty::Map(t), Some(b'{')) => members(r, v, |_| Some(*t)),
        (Ty::List(t), Some(b'[')) => {
            let mut items = v.as_array_mut().into_iter().flatten();
            let Ok(()) = r.items(|r| {
                match items.next() {
                    Some(v) => value(*t, r, v),
                    None => {
                        r.skip();
                    }
                }
                Ok::<(), Infallible>(())
            });
        }
        (Ty::Quantity, Some(b'-' | b'0'..=b'9')) => {
            let text = r.skip();
            // If a member is repeated, the last one is in the tree. Numbers beyond all doubles have a substitute there.
            let number = text.parse::<f64>().unwrap_or_default();
            if matches!(*v, Value::Float(f) if f == number || number.is_infinite()) {
                *v = Value::from(text);
            }
        }
        _ => {
            r.skip();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_gvk;
    use crate::decode::normalize;
    use torana_apimachinery::codec::{json, yaml};
    use torana_apimachinery::json;

    #[test]
    fn quantities_of_yaml_keep_their_digits() {
        let pod = by_gvk("", "v1", "Pod").unwrap();
        let text = b"spec:\n  priority: 9223372036854775809\n  containers:\n  - resources: {}\n  - resources:\n      \
                     limits: {cpu: 18446744073709551615, memory: 1}\n";
        let mut object = yaml::decode(text).unwrap();
        let exact = yaml::with_digits(text, &object).unwrap();
        quantities_of(pod, &exact, &mut object);
        assert_eq!(
            object,
            json!({"spec": {"priority": 9223372036854775809u64, "containers": [
                {"resources": {}}, {"resources": {"limits": {"cpu": "18446744073709551615", "memory": 1}}}
            ]}})
        );
    }

    #[test]
    fn quantities_are_parsed_from_the_text_of_numbers() {
        let pod = by_gvk("", "v1", "Pod").unwrap();
        let cpu = |limits: &str| {
            let text = format!(r#"{{"spec":{{"containers":[{{}},{{"resources":{{"limits":{limits}}}}}]}}}}"#);
            let mut object = json::decode(text.as_bytes()).unwrap();
            quantities_as_written(pod, text.as_bytes(), &mut object);
            normalize(pod, &mut object).unwrap();
            let containers = object.at(&["spec", "containers"]).items();
            containers[1].str_at(&["resources", "limits", "cpu"]).to_owned()
        };
        for (number, want) in [
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775808"),
            ("18446744073709551616", "18446744073709551616"),
            ("1e3", "1e3"),
            ("1.50", "1500m"),
            ("0.1", "100m"),
            ("2", "2"),
        ] {
            assert_eq!(cpu(&format!(r#"{{"a\u0062":1.5,"c\u0070u":{number}}}"#)), want);
        }
        // The last of repeated members counts.
        assert_eq!(cpu(r#"{"cpu":1e3,"cpu":"7"}"#), "7");
        assert_eq!(cpu(r#"{"cpu":1e3,"cpu":2e3}"#), "2e3");
    }
}
