//! Adapts a structural schema to server-side apply ([`ApplySchema`]), by the rules of upstream's
//! `k8s.io/kube-openapi/pkg/schemaconv/openapi.go`.

use super::{Additional, ListKind, Node, Type};
use crate::api::apply_schema::ApplyType;
use crate::apimachinery::Value;
use crate::apimachinery::apply::{ApplySchema, Member, Scalar, Shape};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A location in an object, with its schema for server-side apply.
#[derive(Clone, Copy, Debug)]
pub struct Typed<'a>(Location<'a>);

#[derive(Clone, Copy, Debug)]
enum Location<'a> {
    /// An object with `apiVersion`, `kind` and `metadata`.
    Object(Open<'a>),
    Node(Open<'a>),
    /// A location of a built-in type.
    Meta(ApplyType),
    Text,
    Free,
}

/// A node, and whether it or one above it preserves unknown fields: then every object below may have any.
#[derive(Clone, Copy, Debug)]
struct Open<'a> {
    node: &'a Node,
    unknown: bool,
}

impl<'a> Open<'a> {
    fn below(self, node: &'a Node) -> Typed<'a> {
        Typed::of(node, self.unknown)
    }
}

impl<'a> Typed<'a> {
    pub(super) fn root(node: &'a Node) -> Self {
        let unknown = node.preserve_unknown;
        Self(Location::Object(Open { node, unknown }))
    }

    fn of(node: &'a Node, unknown: bool) -> Self {
        // Inherited downwards, unlike in pruning: structured-merge-diff sees one open type.
        let unknown = unknown || node.preserve_unknown;
        let open = Open { node, unknown };
        Self(if node.embedded {
            Location::Object(open)
        } else {
            Location::Node(open)
        })
    }

    fn open(self) -> Option<Open<'a>> {
        match self.0 {
            Location::Object(n) | Location::Node(n) => Some(n),
            _ => None,
        }
    }
}

fn lift<'a>(shape: Shape<ApplyType>) -> Shape<Typed<'a>> {
    match shape {
        Shape::Scalar(s) => Shape::Scalar(s),
        Shape::Object => Shape::Object,
        Shape::AtomicObject => Shape::AtomicObject,
        Shape::AtomicList => Shape::AtomicList,
        Shape::Set(t) => Shape::Set(Typed(Location::Meta(t))),
        Shape::Keyed(t) => Shape::Keyed(Typed(Location::Meta(t))),
        Shape::Deduced => Shape::Deduced,
        Shape::Untyped => Shape::Untyped,
    }
}

impl ApplySchema for Typed<'_> {
    fn shape(self) -> Shape<Self> {
        let open = match self.0 {
            Location::Meta(t) => return lift(t.shape()),
            Location::Text => return Shape::Scalar(Scalar::String),
            Location::Free => return Shape::Deduced,
            Location::Object(n) | Location::Node(n) => n,
        };
        let node = open.node;
        match node.ty {
            // As upstream, any type; validation comes later.
            _ if node.int_or_string => Shape::Deduced,
            // The format may allow values of other types; validation decides.
            Some(Type::String) if node.is_formatted => Shape::Scalar(Scalar::Untyped),
            Some(Type::String) => Shape::Scalar(Scalar::String),
            Some(Type::Integer | Type::Number) => Shape::Scalar(Scalar::Numeric),
            Some(Type::Boolean) => Shape::Scalar(Scalar::Boolean),
            Some(Type::Object) if node.atomic_map => Shape::AtomicObject,
            Some(Type::Object) => Shape::Object,
            Some(Type::Array) => match (&node.list, &node.items) {
                (ListKind::Set, Some(of)) => Shape::Set(open.below(of)),
                (ListKind::Map(_), Some(of)) => Shape::Keyed(open.below(of)),
                // Without a list type, lists are atomic.
                _ => Shape::AtomicList,
            },
            // A node without a type is described by its properties, if it has any.
            None if node.properties.is_empty() => Shape::Deduced,
            None => Shape::Object,
        }
    }

    fn member(self, name: &str) -> Option<Member<Self>> {
        let declared = |place| {
            Some(Member {
                schema: Self(place),
                declared: true,
            })
        };
        // Metadata is a built-in type, wherever the schema of the custom resource describes it.
        match (self.0, name) {
            (Location::Meta(t), _) => {
                return t.member(name).map(|m| Member {
                    schema: Self(Location::Meta(m.schema)),
                    declared: m.declared,
                });
            }
            (Location::Object(_), "apiVersion" | "kind") => return declared(Location::Text),
            (Location::Object(_), "metadata") => {
                let def = crate::api::by_name(OBJECT_META).expect("the schema table has ObjectMeta");
                return declared(Location::Meta(ApplyType::Root(def)));
            }
            _ => {}
        }
        let free = Some(Member {
            schema: Self(Location::Free),
            declared: false,
        });
        let Some(open) = self.open() else { return free };
        if let Some(p) = open.node.property(name) {
            return Some(Member {
                schema: open.below(p),
                declared: true,
            });
        }
        match &open.node.additional {
            Additional::Schema(of) => Some(Member {
                schema: open.below(of),
                declared: false,
            }),
            // Explicitly open or closed.
            Additional::Any(true) => free,
            Additional::Any(false) => None,
            // An object that declares nothing may have anything.
            Additional::Absent if open.unknown || open.node.properties.is_empty() => free,
            Additional::Absent => None,
        }
    }

    fn elements(self) -> Option<Self> {
        match self.0 {
            Location::Meta(t) => Some(Self(Location::Meta(t.elements()?))),
            _ => {
                let open = self.open()?;
                open.node.items.as_ref().map(|of| open.below(of))
            }
        }
    }

    fn key(&self, i: usize) -> Option<&str> {
        match self.0 {
            Location::Meta(ref t) => t.key(i),
            Location::Object(open) | Location::Node(open) => match &open.node.list {
                ListKind::Map(keys) => keys.get(i).map(|k| k.as_str()),
                _ => None,
            },
            _ => None,
        }
    }

    fn key_default(self, name: &str) -> Option<Value> {
        match self.0 {
            Location::Meta(t) => t.key_default(name),
            _ => {
                let node = self.open()?.node;
                // Defaults of keys identify items that leave the key out.
                node.property(name)?.default.as_deref().map(|d| d.value.clone())
            }
        }
    }

    fn empty(self) -> Value {
        match self.0 {
            Location::Meta(t) => t.empty(),
            _ => Value::object(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::schema::StructuralSchema;

    /// Whether a field at the path may be applied, and whether it is declared.
    fn member(schema: &Value, path: &[&str]) -> Option<bool> {
        let schema = StructuralSchema::parse(schema).expect("a structural schema");
        let mut at = schema.typed();
        let mut declared = true;
        for name in path {
            let member = at.member(name)?;
            (at, declared) = (member.schema, member.declared);
        }
        Some(declared)
    }

    #[test]
    fn unknown_fields_may_be_applied_where_they_are_preserved() {
        let schema = json!({"type": "object", "properties": {
            "closed": {"type": "object", "properties": {"a": {"type": "string"}}},
            "empty": {"type": "object"},
            "none": {"type": "object", "additionalProperties": false},
            "any": {"type": "object", "additionalProperties": true},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "inner": {"type": "object", "properties": {"a": {"type": "string"}}}}}}});
        for (path, want) in [
            (&["closed", "a"][..], Some(true)),
            (&["closed", "x"], None),
            (&["empty", "x", "y"], Some(false)),
            (&["none", "x"], None),
            (&["any", "x", "y"], Some(false)),
            (&["map", "k", "a"], Some(true)),
            (&["map", "k", "x"], None),
            (&["open", "x"], Some(false)),
            // Inherited, unlike in pruning.
            (&["open", "inner", "x"], Some(false)),
            (&["open", "inner", "a"], Some(true)),
            (&["metadata", "labels", "x"], Some(false)),
            (&["x"], None),
        ] {
            assert_eq!(member(&schema, path), want, "{path:?}");
        }
    }

    #[test]
    fn int_or_string_takes_any_type() {
        let schema = json!({"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": true}}});
        let schema = StructuralSchema::parse(&schema).expect("a structural schema");
        let port = schema.typed().member("port").expect("declared").schema;
        assert!(matches!(port.shape(), Shape::Deduced));
    }
}
