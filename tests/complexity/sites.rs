//! Finds where objects can grow: every list, map and string of every kind, by walking the schema table.

use std::collections::{HashMap, HashSet};
use torana::api::{Field, Ty, TypeDef, by_name};

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// One step down an object tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The member with this name.
    Field(&'static str),
    /// The first element of a list.
    First,
    /// The member `k` of a map.
    Member,
}

/// A field of one kind that can be long.
#[derive(Clone)]
pub(crate) struct Site {
    /// The path from the root of the object to the field.
    pub path: Vec<Step>,
    /// The struct that declares the field.
    pub owner: &'static TypeDef,
    pub field: &'static Field,
    /// The type that grows: the field's type, or its element's where lists contain lists.
    pub ty: Ty,
}

impl Site {
    /// The path as shown in messages.
    pub(crate) fn shown(&self) -> String {
        let mut out = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) if out.is_empty() => out.push_str(name),
                Step::Field(name) => out.push_str(&format!(".{name}")),
                Step::First => out.push_str("[0]"),
                Step::Member => out.push_str("[k]"),
            }
        }
        out
    }

    /// Whether the field is part of the status.
    pub(crate) fn in_status(&self) -> bool {
        self.path.first() == Some(&Step::Field("status"))
    }

    /// Whether the growing value is a list or a map.
    pub(crate) fn is_collection(&self) -> bool {
        matches!(self.ty, Ty::List(_) | Ty::Map(_))
    }
}

/// The struct definition of a type, if it is a struct.
pub(crate) fn struct_of(ty: Ty) -> Option<&'static TypeDef> {
    match ty {
        Ty::Struct(r) => Some(r.get()),
        Ty::SchemaOr(_) => by_name(SCHEMA),
        _ => None,
    }
}

/// The number of kinds in which a field has been seen, by struct and field name.
#[derive(Default)]
pub(crate) struct Seen(HashMap<(&'static str, &'static str), usize>);

/// The sites of a definition, without fields that at least `hosts` earlier kinds have.
pub(crate) fn sites_of(def: &'static TypeDef, seen: &mut Seen, hosts: usize) -> Vec<Site> {
    let mut found = Vec::new();
    let mut walked = HashSet::from([def.name]);
    let mut level = vec![(def, Vec::new())];
    // Breadth first, so that the shortest of several paths to a type is taken.
    while !level.is_empty() {
        let mut next = Vec::new();
        for (owner, path) in level {
            for field in owner.fields {
                if field.tag == 0 && matches!(field.name, "apiVersion" | "kind") {
                    continue;
                }
                let mut path: Vec<Step> = path.clone();
                path.push(Step::Field(field.name));
                let count = seen.0.entry((owner.name, field.name)).or_default();
                *count += 1;
                let wanted = *count <= hosts;
                descend(owner, field, field.ty, path, wanted, &mut found, &mut |def, path| {
                    if walked.insert(def.name) {
                        next.push((def, path));
                    }
                });
            }
        }
        level = next;
    }
    found
}

fn descend(
    owner: &'static TypeDef,
    field: &'static Field,
    ty: Ty,
    path: Vec<Step>,
    wanted: bool,
    found: &mut Vec<Site>,
    into: &mut dyn FnMut(&'static TypeDef, Vec<Step>),
) {
    if let Some(def) = struct_of(ty) {
        return into(def, path);
    }
    let grows = !matches!(
        ty,
        Ty::Bool | Ty::Int32 | Ty::Int64 | Ty::Float | Ty::Time | Ty::MicroTime
    );
    if grows && wanted {
        let path = path.clone();
        found.push(Site { path, owner, field, ty });
    }
    let (step, inner) = match ty {
        Ty::List(inner) => (Step::First, *inner),
        Ty::Map(inner) => (Step::Member, *inner),
        _ => return,
    };
    let mut path = path;
    path.push(step);
    // Scalars in lists and maps are not fields of a struct; their length is tried, too.
    descend(owner, field, inner, path, wanted, found, into);
}
