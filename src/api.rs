//! The built-in kinds as data: every definition of Kubernetes v1.36's OpenAPI document with its fields, types, list
//! strategies and what Go writes for a field that is not set.
//!
//! The table is generated (`tools/schema-gen`) and committed; it is read-only memory, searched by halving. What is
//! derived from it lives below: decoding of requests ([`decode`]) and OpenAPI documents ([`openapi`]).

pub mod apply_schema;
pub mod decode;
pub mod openapi;
pub mod patch_schema;
pub mod protobuf;
#[rustfmt::skip]
mod table;

/// A definition: an object type with fields, or a scalar with a name of its own (`Time`, `Quantity`).
#[derive(Debug)]
pub struct TypeDef {
    /// The OpenAPI definition name: `io.k8s.api.core.v1.Pod`.
    pub name: &'static str,
    /// Sorted by JSON name.
    pub fields: &'static [Field],
    /// `x-kubernetes-map-type: atomic`: server-side apply owns values of this type whole.
    pub atomic: bool,
    /// Group, version and kind, for types that stand at the root of a document.
    pub gvks: &'static [(&'static str, &'static str, &'static str)],
    /// How values are read where this is no object of fields.
    pub scalar: Option<Ty>,
    /// `x-kubernetes-unions`, as JSON text.
    pub union: Option<&'static str>,
}

/// A field of an object type.
#[derive(Debug)]
pub struct Field {
    /// The JSON name.
    pub name: &'static str,
    /// What it holds.
    pub ty: Ty,
    /// Listed under `required` in the OpenAPI document.
    pub required: bool,
    /// Go writes it even when nothing is set; see [`Field::emit`] for what.
    pub always: bool,
    /// What Go writes when nothing, or an empty value, is set.
    pub emit: Emit,
    /// Server-side apply's list type.
    pub list: ListType,
    /// Server-side apply's map type: the property's own, else that of the struct it holds.
    pub map: MapType,
    /// The map type stands at the property in the OpenAPI document, not at the type.
    pub map_said: bool,
    /// Strategic merge patch's strategy.
    pub patch_strategy: PatchStrategy,
    /// Strategic merge patch's key of a list of objects.
    pub merge_key: Option<&'static str>,
    /// The protobuf field number; 0 where the field is no part of a message (`apiVersion` and `kind` of a document stand
    /// in its envelope).
    pub tag: u8,
    /// Numbers of the embedded messages the field stands in, outermost first, 0 for none: JSON inlines them, protobuf
    /// nests them.
    pub through: [u8; 2],
    /// The declared default that is no zero value, as JSON text.
    pub default: Option<&'static str>,
}

/// What a field, a list element or a map value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    /// A string.
    String,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A number.
    Float,
    /// A boolean.
    Bool,
    /// Standard base64 with padding.
    Bytes,
    /// RFC 3339 in whole seconds.
    Time,
    /// RFC 3339 with exactly six digits of fraction.
    MicroTime,
    /// A quantity (`100m`, `1Gi`).
    Quantity,
    /// An `i32` or a string.
    IntOrString,
    /// Free form: the schema says nothing about the members.
    Any(Free),
    /// A JSON schema, or something simpler in its place.
    SchemaOr(SchemaOr),
    /// An object with fields.
    Struct(TypeRef),
    /// A list.
    List(&'static Ty),
    /// An object with free keys.
    Map(&'static Ty),
}

/// Kinds of free-form values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Free {
    /// An embedded object of any kind.
    RawExtension,
    /// A set of managed fields.
    FieldsV1,
    /// A patch body.
    Patch,
    /// Any JSON value.
    Json,
    /// An object without declared members.
    Object,
}

/// What may stand in place of a `JSONSchemaProps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    /// A boolean.
    Bool,
    /// A list of schemas.
    Array,
    /// A list of strings.
    StringArray,
}

/// Where a definition stands in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeRef(u16);

/// What Go writes for a field that is not set or set to its empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emit {
    /// Nothing, and an empty value (`""`, 0, `false`, `[]`, `{}`) is dropped too: `omitempty` on a value.
    OmitEmpty,
    /// Nothing, but an empty value is kept: a pointer with `omitempty`.
    OmitNil,
    /// The zero value of its type; of a struct, an object of its own `always` fields.
    Zero,
    /// `null`: a pointer, list, map or time without `omitempty`.
    Null,
}

/// How server-side apply sees a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// The field is no list.
    None,
    /// One value.
    Atomic,
    /// Scalars, each owned by itself.
    Set,
    /// Objects, told apart by these keys.
    Map(&'static [&'static str]),
}

/// How server-side apply sees an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// Members are owned one by one.
    Granular,
    /// One value.
    Atomic,
}

/// How strategic merge patch treats a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchStrategy {
    /// Nothing said: objects merge, lists are replaced.
    None,
    /// `merge`
    Merge,
    /// `retainKeys`
    RetainKeys,
    /// `merge,retainKeys`
    MergeRetainKeys,
    /// `replace`
    Replace,
}

/// All definitions, sorted by name.
pub fn types() -> &'static [TypeDef] {
    &table::TYPES
}

/// The definition with this OpenAPI name.
pub fn by_name(name: &str) -> Option<&'static TypeDef> {
    table::TYPES
        .binary_search_by(|t| t.name.cmp(name))
        .ok()
        .map(|i| &table::TYPES[i])
}

/// The definition of a kind. `DeleteOptions` and `WatchEvent` are found in `""`/`v1` only, though every group has them.
pub fn by_gvk(group: &str, version: &str, kind: &str) -> Option<&'static TypeDef> {
    let found = table::GVKS.binary_search_by(|(g, v, k, _)| (*g, *v, *k).cmp(&(group, version, kind)));
    found.ok().map(|i| table::GVKS[i].3.get())
}

// === impl TypeDef ===

impl TypeDef {
    /// The field with this JSON name; case matters, as in `sigs.k8s.io/json`.
    pub fn field(&self, json_name: &str) -> Option<&'static Field> {
        self.fields
            .binary_search_by(|f| f.name.cmp(json_name))
            .ok()
            .map(|i| &self.fields[i])
    }

    /// The values a field of this type may have (of a list: its elements), sorted; empty where nothing is said.
    pub fn enumeration(&self, field: &str) -> &'static [&'static str] {
        let place = table::TYPES.partition_point(|t| t.name < self.name);
        let found = table::ENUMS.binary_search_by(|(t, f, _)| (usize::from(t.0), *f).cmp(&(place, field)));
        found.map_or(&[], |i| table::ENUMS[i].2)
    }

    /// The Go name of the type: the last part of the definition name.
    pub fn go_name(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    const fn atomic(mut self) -> Self {
        self.atomic = true;
        self
    }
    const fn scalar(mut self, ty: Ty) -> Self {
        self.scalar = Some(ty);
        self
    }
    const fn union(mut self, json: &'static str) -> Self {
        self.union = Some(json);
        self
    }
}

impl TypeRef {
    /// The definition.
    pub fn get(self) -> &'static TypeDef {
        &table::TYPES[usize::from(self.0)]
    }
}

impl Ty {
    /// The struct this is, or that its elements are.
    pub fn struct_def(self) -> Option<&'static TypeDef> {
        match self {
            Self::Struct(r) => Some(r.get()),
            Self::List(t) | Self::Map(t) => t.struct_def(),
            _ => None,
        }
    }
}

// === the words the table is written in ===

const REQUIRED: u8 = 1;
const OMIT_NIL: u8 = 2;
const ZERO: u8 = 4;
const NULL: u8 = 8;
const ATOMIC: u8 = 16;
const SAID: u8 = 32;

const fn typedef(
    name: &'static str,
    gvks: &'static [(&'static str, &'static str, &'static str)],
    fields: &'static [Field],
) -> TypeDef {
    TypeDef {
        name,
        fields,
        atomic: false,
        gvks,
        scalar: None,
        union: None,
    }
}

const fn field(name: &'static str, ty: Ty, flags: u8, tag: u8) -> Field {
    Field {
        name,
        ty,
        required: flags & REQUIRED != 0,
        always: flags & (ZERO | NULL) != 0,
        emit: match flags & (OMIT_NIL | ZERO | NULL) {
            OMIT_NIL => Emit::OmitNil,
            ZERO => Emit::Zero,
            NULL => Emit::Null,
            _ => Emit::OmitEmpty,
        },
        list: ListType::None,
        map: if flags & ATOMIC != 0 {
            MapType::Atomic
        } else {
            MapType::Granular
        },
        map_said: flags & SAID != 0,
        patch_strategy: PatchStrategy::None,
        merge_key: None,
        tag,
        through: [0, 0],
        default: None,
    }
}

impl Field {
    const fn list(mut self, list: ListType) -> Self {
        self.list = list;
        self
    }
    const fn through(mut self, tags: [u8; 2]) -> Self {
        self.through = tags;
        self
    }
    const fn patch(mut self, strategy: PatchStrategy, key: Option<&'static str>) -> Self {
        self.patch_strategy = strategy;
        self.merge_key = key;
        self
    }
    const fn default(mut self, json: &'static str) -> Self {
        self.default = Some(json);
        self
    }
}

#[cfg(test)]
mod tests;
