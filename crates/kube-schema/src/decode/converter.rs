//! Upstream's `runtime.DefaultUnstructuredConverter` where it differs from the JSON decoder
//! (`k8s.io/apimachinery/pkg/runtime/converter.go`). The result of a strategic merge patch is converted from
//! an untyped tree instead of decoded from text: numbers are coerced rather than refused, and errors have
//! different messages.

use super::go_names::go_type_below;
use super::{DecodeError, scalar};
use crate::{Field, Ty, TypeDef};
use torana_apimachinery::interrupt::pause;
use torana_apimachinery::patch::json_type;
use torana_apimachinery::value::Value;

/// Coerces the scalars of `v` to the types of `def`. Scalars that unmarshal themselves (times, quantities) are
/// only checked; [`super::normalize`] rewrites them, and drops unknown fields.
///
/// # Errors
/// The first value of a wrong type in the order of Go's structs, with the converter's message.
pub fn coerce(def: &'static TypeDef, v: &mut Value) -> Result<(), DecodeError> {
    object(def, v).map_err(|wrong| match wrong {
        Wrong::Text(e) => e,
        Wrong::NoText(ty, place) => {
            let name = go_type_below(place.def, place.field, ty, place.below);
            DecodeError(format!("cannot convert int64 to {name}"))
        }
    })
}

/// A value of a wrong type.
enum Wrong {
    Text(DecodeError),
    /// An integer instead of a string. Looking up the name of the type takes long, so it is done once.
    NoText(Ty, Place),
}

impl From<DecodeError> for Wrong {
    fn from(e: DecodeError) -> Self {
        Self::Text(e)
    }
}

fn object(def: &'static TypeDef, v: &mut Value) -> Result<(), Wrong> {
    // Scalars with a name unmarshal themselves.
    if def.scalar.is_some() {
        return Ok(());
    }
    let Value::Object(map) = v else {
        return Err(DecodeError(format!("cannot restore struct from: {}", kind(v))).into());
    };
    // The map is sorted by name, so all members are looked at before the first error is known.
    let mut first: Option<(u8, Wrong)> = None;
    for (key, v) in map.iter_mut() {
        let Some(field) = def.field(key) else { continue };
        let place = Place { def, field, below: 0 };
        if let Err(wrong) = value(field.ty, v, place)
            && first.as_ref().is_none_or(|(before, _)| field.place < *before)
        {
            first = Some((field.place, wrong));
        }
    }
    first.map_or(Ok(()), |(_, wrong)| Err(wrong))
}

/// A value's innermost field, and the number of lists and maps between them.
#[derive(Clone, Copy)]
struct Place {
    def: &'static TypeDef,
    field: &'static Field,
    below: usize,
}

impl Place {
    fn element(self) -> Self {
        let below = self.below + 1;
        Self { below, ..self }
    }
}

fn value(ty: Ty, v: &mut Value, place: Place) -> Result<(), Wrong> {
    pause();
    // The converter leaves a field at its zero value on null, whatever its type.
    if v.is_null() {
        return Ok(());
    }
    match (ty, &mut *v) {
        (Ty::Struct(r), _) => return object(r.get(), v),
        (Ty::List(t), Value::Array(items)) => {
            return items.iter_mut().try_for_each(|v| value(*t, v, place.element()));
        }
        (Ty::List(_), _) => refused("restore slice from", v),
        (Ty::Map(t), Value::Object(map)) => {
            return map.iter_mut().try_for_each(|(_, v)| value(*t, v, place.element()));
        }
        (Ty::Map(_), _) => refused("restore map from", v),
        (Ty::Bytes, Value::String(s)) => {
            scalar::bytes(s).map_err(|e| DecodeError(format!("error decoding from json: {e}")))
        }
        (Ty::Bytes, Value::Array(items)) => items.iter_mut().try_for_each(byte),
        (Ty::Bytes, _) => refused("restore slice from", v),
        (Ty::String, Value::String(_)) | (Ty::Bool, Value::Bool(_)) => Ok(()),
        // By Go's reflection an integer is convertible to a string, so it fails at a later check than other
        // kinds, which knows the type's name.
        (Ty::String, Value::Int(_)) => return Err(Wrong::NoText(ty, place)),
        (Ty::String, _) => unrecognized("string"),
        (Ty::Bool, _) => unrecognized("bool"),
        (Ty::Float, Value::Int(_) | Value::Float(_)) => Ok(()),
        (Ty::Float, _) => unrecognized("float64"),
        (Ty::Int32, _) => integer(v, "int32", |i| i64::from(i as i32)),
        (Ty::Int64, _) => integer(v, "int64", |i| i),
        // Copies are checked: canonical forms depend on more than the type, which `normalize` knows.
        (Ty::Time, Value::String(s)) => scalar::time(&mut s.clone()),
        (Ty::MicroTime, Value::String(s)) => scalar::micro_time(&mut s.clone()),
        (Ty::Time | Ty::MicroTime, _) => Err(DecodeError(format!(
            "json: cannot unmarshal {} into Go value of type string",
            json_type(v)
        ))),
        (Ty::Quantity, _) => scalar::quantity(&mut v.clone()),
        (Ty::IntOrString, _) => scalar::int_or_string(v),
        (Ty::Any(_) | Ty::SchemaOr(_), _) => Ok(()),
    }
    .map_err(Wrong::Text)
}

/// An element of a list that stands for bytes.
fn byte(v: &mut Value) -> Result<(), DecodeError> {
    match v.is_null() {
        true => Ok(()),
        false => integer(v, "uint8", |i| i64::from(i as u8)),
    }
}

/// Go truncates integers that are too wide and accepts floats without a fractional part.
fn integer(v: &mut Value, name: &str, cut: fn(i64) -> i64) -> Result<(), DecodeError> {
    let whole = match v {
        Value::Int(i) => *i,
        Value::Float(f) if f.fract() == 0.0 => truncated(*f),
        Value::Float(_) => return Err(DecodeError(format!("cannot convert float64 to {name}"))),
        _ => return unrecognized(name),
    };
    *v = Value::Int(cut(whole));
    Ok(())
}

/// Go's conversion on x86: what does not fit becomes the smallest integer.
fn truncated(f: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    match (-END..END).contains(&f) {
        true => f as i64,
        false => i64::MIN,
    }
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
    fn floats_that_are_too_large_become_the_smallest_integer() {
        let int32 = |number: f64| deployment(json!({"replicas": number})).map(|spec| spec.get("replicas").clone());
        for (number, expected) in [(1e100, 0), (-1e100, 0), (1e19, 0), (5.0, 5), (4_294_967_297.0, 1)] {
            assert_eq!(int32(number), Ok(Value::Int(expected)), "{number}");
        }
        let def = crate::by_gvk("batch", "v1", "Job").unwrap();
        let mut job = json!({"spec": {"activeDeadlineSeconds": 1e19}});
        coerce(def, &mut job).unwrap();
        assert_eq!(job, json!({"spec": {"activeDeadlineSeconds": (i64::MIN)}}));
    }

    #[test]
    fn messages_name_gos_types() {
        let error = |kind: (&str, &str, &str), mut v: Value| {
            let def = crate::by_gvk(kind.0, kind.1, kind.2).unwrap();
            coerce(def, &mut v).unwrap_err().0
        };
        let pod = |v| error(("", "v1", "Pod"), v);
        assert_eq!(
            pod(json!({"spec": {"restartPolicy": 1}})),
            "cannot convert int64 to v1.RestartPolicy"
        );
        let add = json!({"spec": {"containers": [{"securityContext": {"capabilities": {"add": [1]}}}]}});
        assert_eq!(pod(add), "cannot convert int64 to v1.Capability");
        assert_eq!(
            pod(json!({"metadata": {"uid": 5}})),
            "cannot convert int64 to types.UID"
        );
        assert_eq!(
            pod(json!({"metadata": {"finalizers": [1]}})),
            "cannot convert int64 to string"
        );
        // Numbers with a fraction are not convertible.
        assert_eq!(pod(json!({"status": {"phase": 1.5}})), "unrecognized type: string");
        let secret = |v| error(("", "v1", "Secret"), v);
        assert_eq!(
            secret(json!({"data": {"a": [1, 300, "x"]}})),
            "unrecognized type: uint8"
        );
        // Not an error: the byte is truncated.
        let wrapped = secret(json!({"data": {"a": [1, 300]}, "type": 1}));
        assert_eq!(wrapped, "cannot convert int64 to v1.SecretType");
    }

    #[test]
    fn the_first_error_follows_the_field_order_of_gos_struct() {
        let def = crate::by_gvk("", "v1", "Pod").unwrap();
        let error = |spec: Value| coerce(def, &mut json!({ "spec": spec })).unwrap_err().0;
        // `containers` precede `restartPolicy`, and `resources` precede `terminationMessagePolicy`.
        let container = json!({"terminationMessagePolicy": 1, "resources": {"limits": {"cpu": {}}}});
        assert!(error(json!({"containers": [container], "restartPolicy": 3})).starts_with("quantities must match"));
        let port = json!({"livenessProbe": {"httpGet": {"port": 1.5}}, "stdin": 1});
        assert_eq!(
            error(json!({"containers": [port], "activeDeadlineSeconds": "x"})),
            "json: cannot unmarshal number 1.5 into Go value of type int32"
        );
        let created = coerce(def, &mut json!({"metadata": {"creationTimestamp": 5}}));
        assert_eq!(
            created.unwrap_err().0,
            "json: cannot unmarshal number into Go value of type string"
        );
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
