//! Adapts a structural schema to server-side apply ([`ApplySchema`]).

use super::{ListKind, Node, Type};
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
    Object(&'a Node),
    Node(&'a Node),
    /// A location of a built-in type.
    Meta(ApplyType),
    Text,
    Free,
}

impl<'a> Typed<'a> {
    pub(super) fn root(node: &'a Node) -> Self {
        Self(Location::Object(node))
    }

    fn of(node: &'a Node) -> Self {
        Self(if node.embedded {
            Location::Object(node)
        } else {
            Location::Node(node)
        })
    }

    fn node(self) -> Option<&'a Node> {
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
    }
}

impl ApplySchema for Typed<'_> {
    fn shape(self) -> Shape<Self> {
        let node = match self.0 {
            Location::Meta(t) => return lift(t.shape()),
            Location::Text => return Shape::Scalar(Scalar::String),
            Location::Free => return Shape::Deduced,
            Location::Object(n) | Location::Node(n) => n,
        };
        match node.ty {
            _ if node.int_or_string => Shape::Scalar(Scalar::Untyped),
            Some(Type::String) => Shape::Scalar(Scalar::String),
            Some(Type::Integer | Type::Number) => Shape::Scalar(Scalar::Numeric),
            Some(Type::Boolean) => Shape::Scalar(Scalar::Boolean),
            Some(Type::Object) if node.atomic_map => Shape::AtomicObject,
            Some(Type::Object) => Shape::Object,
            Some(Type::Array) => match (&node.list, &node.items) {
                (ListKind::Set, Some(of)) => Shape::Set(Self::of(of)),
                (ListKind::Map(_), Some(of)) => Shape::Keyed(Self::of(of)),
                _ => Shape::AtomicList,
            },
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
        let Some(node) = self.node() else { return free };
        if let Some(p) = node.property(name) {
            return Some(Member {
                schema: Self::of(p),
                declared: true,
            });
        }
        match node.member(name) {
            Some(of) => Some(Member {
                schema: Self::of(of),
                declared: false,
            }),
            None if node.preserve_unknown || matches!(node.additional, super::Additional::Any(true)) => free,
            None => None,
        }
    }

    fn key(&self, i: usize) -> Option<&str> {
        match self.0 {
            Location::Meta(ref t) => t.key(i),
            Location::Object(n) | Location::Node(n) => match &n.list {
                ListKind::Map(keys) => keys.get(i).map(|k| k.as_str()),
                _ => None,
            },
            _ => None,
        }
    }

    fn key_default(self, name: &str) -> Option<Value> {
        match self.0 {
            Location::Meta(t) => t.key_default(name),
            _ => self.node()?.property(name)?.default.as_deref().map(|d| d.value.clone()),
        }
    }

    fn empty(self) -> Value {
        match self.0 {
            Location::Meta(t) => t.empty(),
            _ => Value::object(),
        }
    }
}
