//! The JSON encoding of documents with their members in the order of Go's structs, which clients and their
//! tests compare as text: `kind`, `apiVersion`, `metadata`, `spec`, `status`. The tree itself is sorted (see
//! [`Value`]).
//!
//! Start at [`encode`], which looks the kind up in the schema table. Values that the table does not
//! describe, such as custom resources and labels, are written sorted, as Go writes maps. Undeclared members follow the
//! declared ones.

mod documents;

use super::{FreeForm, Ty, TypeDef, by_gvk, by_name};
use documents::Layout;
use torana_apimachinery::apply::PathElement;
use torana_apimachinery::codec::json;
use torana_apimachinery::interrupt::pause;
use torana_apimachinery::value::{Map, Value};

/// The schema of a recursive type, which is also what the shorthands of [`super::SchemaOr`] stand for.
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The known order of a value's members.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Nothing: members are sorted.
    Sorted,
    /// An embedded document, which says itself what it is.
    Document,
    /// A value of a type of the schema table.
    Typed(Ty),
    /// An object of a definition of the schema table.
    Object(&'static TypeDef),
    /// A document that has no OpenAPI definition, or an array of such.
    Listed(&'static Layout),
}

/// Appends the encoding of a document, whose kind is looked up in the schema table.
pub fn encode(document: &Value, out: &mut Vec<u8>) {
    encode_as(Shape::of(document), document, out);
}

/// Appends the encoding of a value of this shape.
pub fn encode_as(shape: Shape, value: &Value, out: &mut Vec<u8>) {
    let mut order = Vec::new();
    Encoder { order: &mut order }.value(shape, value, out);
}

/// Encodes a document compactly.
///
/// ```
/// use torana_apimachinery::json;
/// use torana_kube_schema::json::to_vec;
///
/// let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "spec": {}, "metadata": {"name": "a"}});
/// let text = r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a"},"spec":{}}"#;
/// assert_eq!(to_vec(&namespace), text.as_bytes());
/// ```
pub fn to_vec(document: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    encode(document, &mut out);
    out
}

/// Encodes a document as `?pretty=true` does.
pub fn to_vec_pretty(document: &Value) -> Vec<u8> {
    let compact = to_vec(document);
    let mut out = Vec::with_capacity(2 * compact.len());
    json::indent(&compact, 0, &mut out);
    out
}

/// The members of an object in the order in which they are written, with their shapes.
pub fn members(shape: Shape, map: &Map) -> impl Iterator<Item = (&str, &Value, Shape)> {
    let shape = match shape {
        // Resolved once, so that the members find their definition's fields.
        Shape::Typed(Ty::Struct(def)) => Shape::Object(def.get()),
        other => other,
    };
    let mut order = Vec::with_capacity(map.len());
    shape.sort(map, &mut order);
    order.into_iter().map(move |place| shape.member(map, place))
}

// === impl Shape ===

/// Where a member is: its place in the struct ([`PLACE`]), the index of its field ([`FIELD`]), and in the
/// lower half its index in the sorted map. Sorts by the first.
type Place = u64;

const PLACE: u32 = 48;
const FIELD: u32 = 32;

/// The place of members that the struct lacks.
// Behind every declared member: structs have fewer than 255 fields.
const UNDECLARED: u64 = 0xff << PLACE;

impl Shape {
    /// A row of a Table.
    pub fn table_row() -> Self {
        Self::Listed(&documents::ROW)
    }

    /// The conditions of a Table's row.
    pub fn table_conditions() -> Self {
        Self::Listed(&documents::CONDITION)
    }

    /// The shape of a document, by its `apiVersion` and `kind`.
    pub fn of(document: &Value) -> Self {
        let Some(map) = document.as_object() else {
            return Self::Sorted;
        };
        let (kind, api_version) = (map.str("kind"), map.str("apiVersion"));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        match (group, version, kind) {
            (_, _, "") => Self::Sorted,
            // The documents of upstream's without a version: `/api` and `/api/v1`.
            ("", "", "APIVersions" | "APIResourceList") => by_gvk("", "v1", kind).map_or(Self::Sorted, Self::Object),
            ("meta.k8s.io", _, "Table") => Self::Listed(&documents::TABLE),
            // `v1beta1` is served as well, but is not in the table.
            ("meta.k8s.io", _, _) => by_gvk(group, "v1", kind).map_or(Self::Sorted, Self::Object),
            _ => by_gvk(group, version, kind).map_or(Self::Sorted, Self::Object),
        }
    }

    /// Appends the places of an object's members, in the order in which they are written.
    fn sort(self, map: &Map, order: &mut Vec<Place>) {
        let start = order.len();
        let fields = match self {
            Self::Object(def) => def.fields,
            // Linear: these layouts have a handful of members.
            Self::Listed(layout) => {
                let place = |key: &str| layout.members.iter().position(|(name, _)| *name == key);
                let places = map
                    .keys()
                    .map(|key| place(key).map_or(UNDECLARED, |p| (p as u64) << PLACE));
                order.extend((0u64..).zip(places).map(|(i, place)| place | i));
                order[start..].sort_unstable();
                return;
            }
            _ => return order.extend((0u64..).zip(map.keys()).map(|(i, _)| UNDECLARED | i)),
        };
        // Both are sorted by name.
        let mut fields = (0u64..).zip(fields).peekable();
        for (i, key) in (0u64..).zip(map.keys()) {
            while fields.next_if(|(_, f)| f.name < key).is_some() {}
            let declared = fields.next_if(|(_, f)| f.name == key);
            let place = declared.map_or(UNDECLARED, |(n, f)| u64::from(f.place) << PLACE | n << FIELD);
            order.push(place | i);
        }
        // The index in the lower bits keeps undeclared members sorted by name.
        order[start..].sort_unstable();
    }

    /// The member at a place.
    fn member(self, map: &Map, place: Place) -> (&str, &Value, Self) {
        // Truncates to the lower half, which is the index.
        let (key, value) = map.nth(place as u32 as usize);
        let shape = match self {
            _ if place >= UNDECLARED => Self::Sorted,
            Self::Object(def) => Self::Typed(def.fields[usize::from((place >> FIELD) as u8)].ty),
            Self::Listed(layout) => layout.members[(place >> PLACE) as usize].1,
            _ => Self::Sorted,
        };
        (key, value, shape)
    }

    /// This shape for an object or an array of objects.
    fn resolved(self, value: &Value) -> Self {
        match self {
            Self::Typed(Ty::Struct(def)) => Self::Object(def.get()),
            Self::Typed(Ty::Any(FreeForm::RawExtension)) | Self::Document => Self::of(value),
            Self::Typed(Ty::SchemaOr(_)) => by_name(SCHEMA).map_or(Self::Sorted, Self::Object),
            other => other,
        }
    }
}

/// The members of a field set with several list items, in the order of the items' keys: ports 80 and 443 are
/// sorted as numbers. `None` for others, whose members are in order as text.
fn by_path_element(map: &Map) -> Option<Vec<(&str, &Value)>> {
    let is_item = |key: &&str| key.starts_with("k:") || key.starts_with("v:");
    // One item or none is in order already; only two can be out of it.
    map.keys().filter(is_item).nth(1)?;
    let mut members: Vec<(&str, &Value)> = map.iter().collect();
    members.sort_by_cached_key(|(key, _)| {
        pause();
        PathElement::decode(key).ok().flatten()
    });
    Some(members)
}

struct Encoder<'a> {
    /// The places of the open objects' members, one object after another.
    // One buffer for all levels instead of a vector per object.
    order: &'a mut Vec<Place>,
}

impl Encoder<'_> {
    fn value(&mut self, shape: Shape, value: &Value, out: &mut Vec<u8>) {
        match value {
            Value::Object(map) if !map.is_empty() => match shape.resolved(value) {
                shape @ (Shape::Object(_) | Shape::Listed(_)) => self.object(shape, map, out),
                Shape::Typed(Ty::Map(of)) => self.map(Shape::Typed(*of), map.iter(), out),
                shape @ Shape::Typed(Ty::Any(FreeForm::FieldsV1)) => match by_path_element(map) {
                    Some(members) => self.map(shape, members.into_iter(), out),
                    None => self.map(shape, map.iter(), out),
                },
                _ => json::encode(value, out),
            },
            Value::Array(items) if !items.is_empty() => {
                let shape = match shape {
                    Shape::Typed(Ty::List(item)) => Shape::Typed(*item),
                    Shape::Typed(Ty::SchemaOr(_)) | Shape::Listed(_) => shape,
                    _ => return json::encode(value, out),
                };
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    pause();
                    if i > 0 {
                        out.push(b',');
                    }
                    self.value(shape, item, out);
                }
                out.push(b']');
            }
            scalar => json::encode(scalar, out),
        }
    }

    /// A map of values of this shape, in the order given.
    fn map<'v>(&mut self, shape: Shape, members: impl Iterator<Item = (&'v str, &'v Value)>, out: &mut Vec<u8>) {
        out.push(b'{');
        for (i, (key, value)) in members.enumerate() {
            pause();
            if i > 0 {
                out.push(b',');
            }
            json::encode_str(key, out);
            out.push(b':');
            self.value(shape, value, out);
        }
        out.push(b'}');
    }

    fn object(&mut self, shape: Shape, map: &Map, out: &mut Vec<u8>) {
        out.push(b'{');
        let start = self.order.len();
        shape.sort(map, self.order);
        for i in start..self.order.len() {
            let (key, value, shape) = shape.member(map, self.order[i]);
            if i > start {
                out.push(b',');
            }
            json::encode_str(key, out);
            out.push(b':');
            self.value(shape, value, out);
        }
        // Gives the space back to the enclosing object's next member.
        self.order.truncate(start);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests;
