//! The error of Go's decoder for a document that does not fit its type, found in the document's own order
//! and with its own spelling of numbers. The tree has neither, so only the refusal of a body reads it again.
//!
//! Start at [`explain`].

use super::go_names::{embedded, go_type_below};
use super::position::{dot, go_struct, go_type};
use super::{DecodeError, SCHEMA, of_schema_or, scalar};
use crate::{Field, FreeForm, SchemaOr, Ty, TypeDef, by_name};
use torana_apimachinery::codec::json::text::TextReader;
use torana_apimachinery::interrupt::pause;
use torana_apimachinery::value::{Str, Value};

/// The deepest nesting that is explained; documents are not decoded beyond it.
const MAX_DEPTH: usize = torana_apimachinery::codec::json::MAX_DEPTH;

/// The error of Go's decoder for `json`, a syntactically valid document of type `def`; `None` if it fits.
///
/// Values that a type with its own parser refuses (a quantity, a time) end the decoding. Other values of a
/// wrong type do not; the first is reported if nothing ends it.
pub fn explain(def: &'static TypeDef, json: &[u8]) -> Option<DecodeError> {
    // Go's decoder replaces invalid UTF-8 too.
    let json = String::from_utf8_lossy(json);
    let mut reader = TextReader::new(&json);
    let mut cx = Cx::default();
    let ended = cx.value(&mut reader, Some(Ty::Struct(type_ref(def)?)), 0, 0).err();
    ended.or(cx.mismatch).map(|e| DecodeError(e.text()))
}

fn type_ref(def: &'static TypeDef) -> Option<crate::TypeRef> {
    // The table is sorted by name.
    let place = crate::types().binary_search_by(|t| t.name.cmp(def.name)).ok()?;
    u16::try_from(place).ok().map(crate::TypeRef)
}

/// An error of Go's decoder.
enum GoError {
    /// encoding/json's `UnmarshalTypeError`: a value of the wrong type. Decoding goes on.
    Type {
        what: String,
        go_type: String,
        owner: Option<&'static str>,
        path: String,
    },
    /// Another error, in its own words.
    Text(String),
}

impl GoError {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Type {
                what,
                go_type,
                owner,
                path,
            } => match owner {
                Some(owner) => {
                    format!("json: cannot unmarshal {what} into Go struct field {owner}.{path} of type {go_type}")
                }
                None => format!("json: cannot unmarshal {what} into Go value of type {go_type}"),
            },
        }
    }
}

type Step = Result<(), GoError>;

/// Go's decoder: the fields that lead to the value that is decoded, and the first value of a wrong type.
#[derive(Default)]
struct Cx {
    fields: Vec<(&'static TypeDef, &'static Field)>,
    mismatch: Option<GoError>,
}

impl Cx {
    /// The innermost struct, and the path of the fields.
    fn context(&self) -> (Option<&'static str>, String) {
        let mut path = String::new();
        for (def, field) in &self.fields {
            for name in embedded(def, field).into_iter().chain([field.name]) {
                dot(&mut path, name);
            }
        }
        (self.fields.last().map(|(def, _)| def.go_name()), path)
    }

    fn wrong(&self, what: impl Into<String>, go_type: impl Into<String>) -> GoError {
        let (owner, path) = self.context();
        GoError::Type {
            what: what.into(),
            go_type: go_type.into(),
            owner,
            path,
        }
    }

    /// Records a value of a wrong type if it is the first one. Lazy, because building the message is not cheap.
    fn record(&mut self, what: impl FnOnce() -> String, go_type: impl FnOnce(&Self) -> String) {
        if self.mismatch.is_none() {
            self.mismatch = Some(self.wrong(what(), go_type(self)));
        }
    }

    /// The Go type of a value that is so many lists or maps below the innermost field.
    fn type_of(&self, ty: Ty, below: usize) -> String {
        match self.fields.last() {
            Some((def, field)) => go_type_below(def, field, ty, below),
            None => go_type(ty),
        }
    }

    fn value(&mut self, r: &mut TextReader<'_>, ty: Option<Ty>, below: usize, depth: usize) -> Step {
        pause();
        let kind = JsonType::of(r.peek());
        // Nothing below is looked at: null leaves a field unset, and unknown fields have no type.
        let Some(ty) = ty.filter(|_| depth <= MAX_DEPTH && kind != JsonType::Null) else {
            r.skip();
            return Ok(());
        };
        match (ty, kind) {
            (Ty::Struct(def), JsonType::Object) => self.object(r, def.get(), depth),
            (Ty::List(t), JsonType::Array) => r.items(|r| self.value(r, Some(*t), below + 1, depth + 1)),
            // Keys do not count as fields in Go's path.
            (Ty::Map(t), JsonType::Object) => r.members(|r, _| self.value(r, Some(*t), below + 1, depth + 1)),
            (Ty::Bytes, JsonType::Array) => r.items(|r| {
                self.byte(r);
                Ok(())
            }),
            (Ty::SchemaOr(or), _) => self.schema_or(r, or, depth),
            _ => {
                let text = r.skip();
                self.scalar(ty, below, kind, text)
            }
        }
    }

    /// A value that is read as a whole.
    fn scalar(&mut self, ty: Ty, below: usize, kind: JsonType, text: &str) -> Step {
        let own = |result: Result<(), DecodeError>| result.map_err(|e| GoError::Text(e.0));
        match (ty, kind) {
            (Ty::String, JsonType::String) | (Ty::Bool, JsonType::Bool) => {}
            (Ty::Any(FreeForm::Object), JsonType::Object) => {}
            (Ty::Any(FreeForm::RawExtension | FreeForm::FieldsV1 | FreeForm::Json | FreeForm::Patch), _) => {}
            // The text decides, not its value: Go refuses `1.0` and `1e2` for integers.
            (Ty::Int32, JsonType::Number) if text.parse::<i32>().is_ok() => {}
            (Ty::Int64, JsonType::Number) if text.parse::<i64>().is_ok() => {}
            (Ty::Float, JsonType::Number) if text.parse::<f64>().is_ok_and(f64::is_finite) => {}
            (Ty::Int32 | Ty::Int64 | Ty::Float, JsonType::Number) => {
                self.record(|| format!("number {text}"), |cx| cx.type_of(ty, below));
            }
            (Ty::Time, JsonType::String) => return own(scalar::time(&mut unquoted(text))),
            (Ty::MicroTime, JsonType::String) => return own(scalar::micro_time(&mut unquoted(text))),
            (Ty::Time | Ty::MicroTime, _) => return Err(self.wrong(kind.name(), "string")),
            (Ty::Quantity, _) => {
                // Go's parser of quantities takes the quoted text or a bare number.
                let bare = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
                return own(scalar::quantity(&mut Value::from(bare.trim())));
            }
            (Ty::IntOrString, JsonType::String) => {}
            (Ty::IntOrString, JsonType::Number) if text.parse::<i32>().is_ok() => {}
            (Ty::IntOrString, JsonType::Number) => return Err(self.wrong(format!("number {text}"), "int32")),
            (Ty::IntOrString, _) => return Err(self.wrong(kind.name(), "int32")),
            (Ty::Bytes, JsonType::String) => {
                if let Err(e) = scalar::base64(&unquoted(text)) {
                    // Like a wrong type, it does not end the decoding in Go.
                    self.mismatch.get_or_insert(GoError::Text(e.0));
                }
            }
            (Ty::Struct(def), _) => self.record(|| kind.name().into(), |_| go_struct(def.get())),
            _ => self.record(|| kind.name().into(), |cx| cx.type_of(ty, below)),
        }
        Ok(())
    }

    /// An element of a list of bytes.
    fn byte(&mut self, r: &mut TextReader<'_>) {
        let kind = JsonType::of(r.peek());
        let text = r.skip();
        match kind {
            JsonType::Null => {}
            JsonType::Number if text.parse::<u8>().is_ok() => {}
            JsonType::Number => self.record(|| format!("number {text}"), |_| "uint8".into()),
            _ => self.record(|| kind.name().into(), |_| "uint8".into()),
        }
    }

    fn object(&mut self, r: &mut TextReader<'_>, def: &'static TypeDef, depth: usize) -> Step {
        r.members(|r, key| {
            // Go looks names up after unescaping.
            let Some(field) = def.field(&unquoted(key)) else {
                return self.value(r, None, 0, depth);
            };
            self.fields.push((def, field));
            // After an error the field stays on the stack, which nobody reads any more.
            self.value(r, Some(field.ty), 0, depth + 1)?;
            self.fields.pop();
            Ok(())
        })
    }

    /// A schema or a shorthand for it, which Go decodes on its own. Its error gets the outer struct, and the
    /// outer path before its own.
    fn schema_or(&mut self, r: &mut TextReader<'_>, or: SchemaOr, depth: usize) -> Step {
        let kind = JsonType::of(r.peek());
        let ty = by_name(SCHEMA).and_then(type_ref).map(Ty::Struct);
        // Go calls the type's own unmarshaller, which starts with an empty path.
        let mut inner = Self::default();
        let ended = match (or, kind) {
            (_, JsonType::Object) => inner.value(r, ty, 0, depth),
            (SchemaOr::Array, JsonType::Array) => r.items(|r| inner.value(r, ty, 0, depth + 1)),
            (SchemaOr::StringArray, JsonType::Array) => r.items(|r| inner.value(r, Some(Ty::String), 1, depth + 1)),
            _ => {
                r.skip();
                match of_schema_or(or, kind == JsonType::Bool) {
                    Some(text) => Err(GoError::Text(text.to_owned())),
                    None => Ok(()),
                }
            }
        };
        // An inner mismatch ends the outer decoding, because the unmarshaller returns it as an error.
        match ended.err().or(inner.mismatch) {
            None => Ok(()),
            Some(GoError::Type {
                what, go_type, path, ..
            }) if !self.fields.is_empty() => {
                let (owner, mut whole) = self.context();
                if !path.is_empty() {
                    dot(&mut whole, &path);
                }
                Err(GoError::Type {
                    what,
                    go_type,
                    owner,
                    path: whole,
                })
            }
            Some(e) => Err(e),
        }
    }
}

/// The value of a JSON string, unescaped.
pub(super) fn unquoted(text: &str) -> Str {
    serde_json::from_str::<String>(text).unwrap_or_default().into()
}

/// The type of a JSON value.
#[derive(Clone, Copy, PartialEq)]
enum JsonType {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl JsonType {
    /// The type of the value that starts with this byte.
    fn of(first: Option<u8>) -> Self {
        match first {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::Array,
            Some(b'"') => Self::String,
            Some(b't' | b'f') => Self::Bool,
            Some(b'n') | None => Self::Null,
            Some(_) => Self::Number,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_gvk;

    #[test]
    fn errors_name_gos_types_in_document_order() {
        let pod = |json: &str| explain(by_gvk("", "v1", "Pod").unwrap(), json.as_bytes()).map(|e| e.0);
        let into = |what: &str, field: &str, ty: &str| {
            Some(format!(
                "json: cannot unmarshal {what} into Go struct field {field} of type {ty}"
            ))
        };
        for (json, want) in [
            (r#"{"metadata": {"name": "a"}, "x": [1e400]}"#, None),
            (
                r#"{"spec": {"restartPolicy": 1, "containers": [{"name": 5}]}}"#,
                into("number", "PodSpec.spec.restartPolicy", "v1.RestartPolicy"),
            ),
            (
                r#"{"spec":{"containers":[{"livenessProbe":{"periodSeconds":1e400}}]}}"#,
                into(
                    "number 1e400",
                    "Probe.spec.containers.livenessProbe.periodSeconds",
                    "int32",
                ),
            ),
            (
                r#"{"spec":{"volumes":[{"name":"a","hostPath":true}]}}"#,
                into(
                    "bool",
                    "Volume.spec.volumes.VolumeSource.hostPath",
                    "v1.HostPathVolumeSource",
                ),
            ),
            (
                r#"{"metadata":{"creationTimestamp":1}}"#,
                into("number", "ObjectMeta.metadata.creationTimestamp", "string"),
            ),
            (
                r#"{"metadata":{"ownerReferences":[{"uid":[1,{"a":"]"}],"kind":1}]}}"#,
                into("array", "OwnerReference.metadata.ownerReferences.uid", "types.UID"),
            ),
            (
                r#"{"spec":{"containers":[{"ports":[{"protocol":{}}], "name":1}]}}"#,
                into("object", "ContainerPort.spec.containers.ports.protocol", "v1.Protocol"),
            ),
            (
                r#"{"spec":{"containers":[{"securityContext":{"capabilities":{"add":[1]}}}]}}"#,
                into(
                    "number",
                    "Capabilities.spec.containers.securityContext.capabilities.add",
                    "v1.Capability",
                ),
            ),
            (
                r#"{"metadata":1,"spec":{"activeDeadlineSeconds":"\"","containers":[{"resources":{"limits":{"cpu":"x y"}}}]}}"#,
                Some(
                    torana_apimachinery::quantity::canonicalize("x y")
                        .unwrap_err()
                        .to_string(),
                ),
            ),
            (
                "[]",
                Some("json: cannot unmarshal array into Go value of type v1.Pod".to_owned()),
            ),
        ] {
            assert_eq!(pod(json), want, "{json}");
        }
    }

    #[test]
    fn schemas_are_decoded_on_their_own() {
        let def = by_gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
        let schema = |json: &str| {
            let whole = format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{json}}}}}]}}}}"#);
            explain(def, whole.as_bytes()).map(|e| e.0)
        };
        let path = "spec.versions.schema.openAPIV3Schema";
        assert_eq!(schema(r#"{"items":3,"additionalProperties":false}"#), None);
        assert_eq!(
            schema(r#"{"items":{"properties":{"a":{"type":1}}}}"#),
            Some(format!(
                "json: cannot unmarshal number into Go struct field JSONSchemaProps.{path}.items.properties.type of type string"
            ))
        );
        assert_eq!(
            schema(r#"{"enum":"a"}"#),
            Some(format!(
                "json: cannot unmarshal string into Go struct field JSONSchemaProps.{path}.enum of type []v1.JSON"
            ))
        );
        assert_eq!(
            schema(r#"{"type":1,"additionalProperties":[]}"#).as_deref(),
            Some("boolean or JSON schema expected")
        );
    }

    #[test]
    fn malformed_json_terminates() {
        for json in [
            "",
            "{",
            "[",
            "{\"spec\"",
            "{\"spec\":",
            "{]",
            "{\"a\" 1}",
            "}{",
            "\"",
            "{\"metadata\":{\"name\":}",
        ] {
            let _ = explain(by_gvk("", "v1", "Pod").unwrap(), json.as_bytes());
        }
    }
}
