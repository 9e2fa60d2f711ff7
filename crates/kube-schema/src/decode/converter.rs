//! Upstream's `runtime.DefaultUnstructuredConverter` where it differs from the JSON decoder
//! (`k8s.io/apimachinery/pkg/runtime/converter.go`). The result of a strategic merge patch is converted from
//! an untyped tree instead of decoded from text: numbers are coerced rather than refused, and errors have
//! different messages.

use super::DecodeError;
use crate::{Ty, TypeDef};
use torana_apimachinery::value::Value;

/// Coerces the scalars of `v` to the types of `def`. Types that unmarshal themselves (times, quantities) and
/// unknown fields are left to [`super::normalize`].
///
/// # Errors
/// The first value of a wrong type, with the converter's message.
pub fn coerce(def: &'static TypeDef, v: &mut Value) -> Result<(), DecodeError> {
    // Scalars with a name unmarshal themselves.
    if def.scalar.is_some() {
        return Ok(());
    }
    let Value::Object(map) = v else {
        return Err(DecodeError(format!("cannot restore struct from: {}", kind(v))));
    };
    for (key, v) in map.iter_mut() {
        if let Some(f) = def.field(key) {
            value(f.ty, v)?;
        }
    }
    Ok(())
}

fn value(ty: Ty, v: &mut Value) -> Result<(), DecodeError> {
    if v.is_null() {
        return Ok(());
    }
    match (ty, &mut *v) {
        (Ty::Struct(r), _) => coerce(r.get(), v),
        (Ty::List(t), Value::Array(items)) => items.iter_mut().try_for_each(|v| value(*t, v)),
        (Ty::List(_), _) => refused("restore slice from", v),
        (Ty::Map(t), Value::Object(map)) => map.iter_mut().try_for_each(|(_, v)| value(*t, v)),
        (Ty::Map(_), _) => refused("restore map from", v),
        (Ty::Bytes, Value::String(s)) => {
            super::scalar::bytes(s).map_err(|e| DecodeError(format!("error decoding from json: {e}")))
        }
        (Ty::Bytes, Value::Array(_)) => Ok(()),
        (Ty::Bytes, _) => refused("restore slice from", v),
        (Ty::String, Value::String(_)) | (Ty::Bool, Value::Bool(_)) => Ok(()),
        // By Go's reflection an integer is convertible to a string, so it fails at a later check than other
        // kinds.
        (Ty::String, Value::Int(_)) => Err(DecodeError("cannot convert int64 to string".into())),
        (Ty::String, _) => unrecognized("string"),
        (Ty::Bool, _) => unrecognized("bool"),
        (Ty::Float, Value::Int(_) | Value::Float(_)) => Ok(()),
        (Ty::Float, _) => unrecognized("float64"),
        (Ty::Int32, _) => integer(v, "int32", |i| i64::from(i as i32)),
        (Ty::Int64, _) => integer(v, "int64", |i| i),
        _ => Ok(()),
    }
}

/// Go truncates integers that are too wide and accepts floats without a fractional part.
fn integer(v: &mut Value, name: &str, cut: fn(i64) -> i64) -> Result<(), DecodeError> {
    let whole = match v {
        Value::Int(i) => *i,
        Value::Float(f) if f.fract() == 0.0 => *f as i64,
        Value::Float(_) => return Err(DecodeError(format!("cannot convert float64 to {name}"))),
        _ => return unrecognized(name),
    };
    *v = Value::Int(cut(whole));
    Ok(())
}

fn unrecognized(name: &str) -> Result<(), DecodeError> {
    Err(DecodeError(format!("unrecognized type: {name}")))
}

fn refused(what: &str, v: &Value) -> Result<(), DecodeError> {
    Err(DecodeError(format!("cannot {what} {}", kind(v))))
}

/// Go's `reflect.Kind` of an untyped value.
fn kind(v: &Value) -> &'static str {
    match v {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torana_apimachinery::json;

    fn deployment(spec: Value) -> Result<Value, String> {
        let def = crate::by_gvk("apps", "v1", "Deployment").unwrap();
        let mut v = json!({"spec": spec});
        coerce(def, &mut v).map(|()| v.get("spec").clone()).map_err(|e| e.0)
    }

    #[test]
    fn wrong_types_are_rejected_with_the_converters_messages() {
        let error = |spec| deployment(spec).unwrap_err();
        assert_eq!(error(json!("x")), "cannot restore struct from: string");
        assert_eq!(error(json!({"replicas": "5"})), "unrecognized type: int32");
        assert_eq!(error(json!({"replicas": 1.5})), "cannot convert float64 to int32");
        let containers = json!({"template": {"spec": {"containers": {"name": "a"}}}});
        assert_eq!(error(containers), "cannot restore slice from map");
        let labels = json!({"template": {"metadata": {"labels": "x"}}});
        assert_eq!(error(labels), "cannot restore map from string");
        let label = json!({"template": {"metadata": {"labels": {"x": 1}}}});
        assert_eq!(error(label), "cannot convert int64 to string");
    }

    #[test]
    fn numbers_are_coerced_to_the_field_type() {
        assert_eq!(deployment(json!({"replicas": 3.0})).unwrap(), json!({"replicas": 3}));
        assert_eq!(
            deployment(json!({"replicas": 4294967297i64})).unwrap(),
            json!({"replicas": 1})
        );
        assert_eq!(
            deployment(json!({"replicas": null})).unwrap(),
            json!({"replicas": null})
        );
    }
}
