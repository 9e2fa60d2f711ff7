//! Adapter from the schema table to server-side apply: [`ApplyType`] implements [`ApplySchema`] for built-in
//! kinds.

use super::decode::zero;
use super::{Emit, Field, FreeForm, ListType, MapType, Ty, TypeDef};
use torana_apimachinery::Value;
use torana_apimachinery::apply::{ApplySchema, Member, Scalar, Shape};
use torana_apimachinery::codec::json;

/// A position in the schema. List and map semantics come from the field that holds a value, so the field is
/// kept rather than only its type.
///
/// ```
/// use torana_apimachinery::apply::{ApplyRequest, FieldSet, Writer, apply};
/// use torana_apimachinery::json;
/// use torana_kube_schema::apply_schema::ApplyType;
/// use torana_kube_schema::by_gvk;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let schema = ApplyType::Root(by_gvk("", "v1", "ConfigMap").expect("a built-in kind"));
/// let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
/// let (reset, now) = (FieldSet::new(), "2026-01-01T00:00:00Z");
/// let writer = Writer { manager: "deploy", subresource: "", api_version: "v1", now };
/// let applied = apply(schema, None, &config, &ApplyRequest { writer, force: false, reset: &reset })?;
///
/// let owned = applied.object.at(&["metadata", "managedFields"]).items()[0].get("fieldsV1");
/// assert!(owned.at(&["f:data", "f:k"]).as_object().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ApplyType {
    /// The root of a document.
    Root(&'static TypeDef),
    /// The value of a field.
    Field(&'static Field),
    /// The element of a list or map.
    Element(Ty),
}

// Definitions and fields exist only in the static table, so identity is equality.
impl PartialEq for TypeDef {
    fn eq(&self, other: &Self) -> bool {
        // Comparing contents would recurse through the whole schema.
        std::ptr::eq(self, other)
    }
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl ApplyType {
    fn ty(self) -> Option<Ty> {
        match self {
            Self::Root(_) => None,
            Self::Field(f) => Some(f.ty),
            Self::Element(t) => Some(t),
        }
    }

    fn def(self) -> Option<&'static TypeDef> {
        match (self, self.ty()) {
            (Self::Root(d), _) => Some(d),
            (_, Some(Ty::Struct(r))) => Some(r.get()),
            _ => None,
        }
    }

    fn list(self) -> ListType {
        match self {
            // The list type is a property of the field, so a list inside of a list or map has none.
            Self::Field(f) => f.list,
            _ => ListType::Atomic,
        }
    }
}

impl ApplySchema for ApplyType {
    fn shape(self) -> Shape<Self> {
        let atomic = match self {
            Self::Root(_) => false,
            // The generator has merged the type's own setting into that of the field.
            Self::Field(f) => f.map == MapType::Atomic,
            Self::Element(_) => self.def().is_some_and(|d| d.atomic),
        };
        let object = if atomic { Shape::AtomicObject } else { Shape::Object };
        let Some(ty) = self.ty() else { return object };
        match ty {
            Ty::String | Ty::Bytes => Shape::Scalar(Scalar::String),
            Ty::Int32 | Ty::Int64 | Ty::Float => Shape::Scalar(Scalar::Numeric),
            Ty::Bool => Shape::Scalar(Scalar::Boolean),
            Ty::Time | Ty::MicroTime | Ty::Quantity => Shape::Scalar(Scalar::Untyped),
            // Upstream derives its types from OpenAPI v3, where this is a `oneOf` without a type, which stands for
            // anything. A value that is neither a number nor a string fails later, where the merged object is decoded.
            Ty::IntOrString => Shape::Deduced,
            // Owned as a whole, and not only objects: upstream knows this type by its name rather than by its published
            // schema. A value that is not an object fails in validation.
            Ty::Any(FreeForm::RawExtension) => Shape::Untyped,
            // An object in the published schema, though of any members.
            Ty::Any(FreeForm::FieldsV1) => object,
            Ty::Any(_) | Ty::SchemaOr(_) => Shape::Deduced,
            Ty::Struct(_) | Ty::Map(_) => object,
            Ty::List(of) => match self.list() {
                ListType::Set => Shape::Set(Self::Element(*of)),
                ListType::Map(_) => Shape::Keyed(Self::Element(*of)),
                // Lists without a declared type are atomic.
                ListType::Atomic | ListType::None => Shape::AtomicList,
            },
        }
    }

    fn member(self, name: &str) -> Option<Member<Self>> {
        // A struct without fields is published as an object of any members.
        if let Some(d) = self.def().filter(|d| !d.fields.is_empty()) {
            return d.field(name).map(|f| Member {
                schema: Self::Field(f),
                declared: true,
            });
        }
        match self.ty()? {
            Ty::Map(of) => Some(Member {
                schema: Self::Element(*of),
                declared: false,
            }),
            Ty::Struct(_) | Ty::Any(_) | Ty::SchemaOr(_) | Ty::IntOrString => Some(Member {
                // Inside free-form values everything is free-form, and owned as it was deduced.
                schema: Self::Element(Ty::Any(FreeForm::Json)),
                declared: false,
            }),
            _ => None,
        }
    }

    fn elements(self) -> Option<Self> {
        match self.ty()? {
            Ty::List(of) => Some(Self::Element(*of)),
            _ => None,
        }
    }

    fn key(&self, i: usize) -> Option<&str> {
        match self.list() {
            ListType::Map(keys) => keys.get(i).copied(),
            _ => None,
        }
    }

    fn key_default(self, name: &str) -> Option<Value> {
        let f = self.def()?.field(name)?;
        match f.default {
            Some(text) => json::decode(text.as_bytes()).ok(),
            // The published schema gives a required, always-encoded key its zero value as default, and
            // upstream's merge keys honour schema defaults.
            None if f.required && f.emit == Emit::Zero => Some(zero(f.ty)),
            None => None,
        }
    }

    fn empty(self) -> Value {
        let Some(d) = self.def() else { return Value::object() };
        let unset = |f: &Field| if f.emit == Emit::Zero { zero(f.ty) } else { Value::Null };
        Value::Object(
            d.fields
                .iter()
                .filter(|f| f.always)
                .map(|f| (f.name, unset(f)))
                .collect(),
        )
    }
}
