//! Where the decoder is in a document, and how Go's errors name that place and its type.

use super::DecodeError;
use crate::{Field, FreeForm, Ty, TypeDef};

/// The decoder's current path as a linked list through the call stack. Rendered only for a finding or an
/// error.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) parent: Option<&'a At<'a>>,
    pub(super) step: Step<'a>,
    pub(super) depth: usize,
}

/// A step of a path.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Root,
    Field(&'static TypeDef, &'static Field),
    Key(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    /// The position one step below.
    pub(super) fn then<'b>(&'b self, step: Step<'b>) -> At<'b>
    where
        'a: 'b,
    {
        At {
            parent: Some(self),
            step,
            depth: self.depth + 1,
        }
    }

    /// From the root. Collected from the leaf up; only errors and findings pay for it.
    pub(super) fn steps(&self) -> Vec<Step<'_>> {
        let mut out: Vec<Step<'_>> = std::iter::successors(Some(self), |a| a.parent)
            .map(|a| a.step)
            .collect();
        out.reverse();
        out
    }

    /// `spec.containers[0].foo`
    pub(super) fn path_to(&self, key: &str) -> String {
        let mut out = String::new();
        for step in self.steps() {
            match step {
                Step::Root => continue,
                Step::Index(i) => {
                    out.push_str(&format!("[{i}]"));
                    continue;
                }
                Step::Field(_, f) => dot(&mut out, f.name),
                Step::Key(k) => dot(&mut out, k),
            }
        }
        dot(&mut out, key);
        out
    }

    /// Go's `UnmarshalTypeError`: names the innermost struct, and the field path from the root without list
    /// indexes and map keys.
    pub(super) fn mismatch(&self, what: &str, go_type: &str) -> DecodeError {
        let (mut owner, mut path) = (None, String::new());
        for step in self.steps() {
            if let Step::Field(def, f) = step {
                owner = Some(def);
                dot(&mut path, f.name);
            }
        }
        DecodeError(match owner {
            Some(def) => {
                format!(
                    "json: cannot unmarshal {what} into Go struct field {}.{path} of type {go_type}",
                    def.go_name()
                )
            }
            None => format!("json: cannot unmarshal {what} into Go value of type {go_type}"),
        })
    }
}

pub(super) fn dot(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push('.');
    }
    out.push_str(name);
}

/// A struct's name with its package.
pub(super) fn go_struct(def: &TypeDef) -> String {
    let mut parts = def.name.rsplit('.');
    let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{package}.{name}")
}

/// The type name as Go's reflection prints it.
pub(super) fn go_type(ty: Ty) -> String {
    match ty {
        Ty::String => "string".into(),
        Ty::Int32 => "int32".into(),
        Ty::Int64 => "int64".into(),
        Ty::Float => "float64".into(),
        Ty::Bool => "bool".into(),
        Ty::Bytes => "[]uint8".into(),
        Ty::Time => "v1.Time".into(),
        Ty::MicroTime => "v1.MicroTime".into(),
        Ty::Quantity => "resource.Quantity".into(),
        Ty::IntOrString => "intstr.IntOrString".into(),
        Ty::Any(FreeForm::RawExtension) => "runtime.RawExtension".into(),
        Ty::Any(_) | Ty::SchemaOr(_) => "interface {}".into(),
        Ty::Struct(r) => go_struct(r.get()),
        Ty::List(t) => format!("[]{}", go_type(*t)),
        Ty::Map(t) => format!("map[string]{}", go_type(*t)),
    }
}
