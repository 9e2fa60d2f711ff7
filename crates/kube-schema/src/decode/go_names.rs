//! Go's names for the types of fields, as far as they do not follow from the schema.

use super::position::go_type;
use crate::{Field, Ty, TypeDef};

/// Go types of fields that do not follow from the schema, and embedded structs; the file describes its format.
const GO_TYPES: &str = include_str!("go_types.txt");

/// Facts about a field that the schema lacks: its Go type, if that does not follow from the schema, and the
/// embedded structs that contain it.
#[derive(Clone, Copy, Default)]
struct GoField {
    go_type: Option<&'static str>,
    embedded: Option<&'static str>,
}

fn go_field(def: &TypeDef, field: &str) -> GoField {
    // Inlined in every Go type.
    if !def.gvks.is_empty() && matches!(field, "apiVersion" | "kind") {
        return GoField {
            go_type: None,
            embedded: Some("TypeMeta"),
        };
    }
    let definition = def.name.strip_prefix("io.k8s.").unwrap_or(def.name);
    let of_field = |line: &&'static str| {
        let rest = line.strip_prefix(definition)?.strip_prefix('.')?.strip_prefix(field)?;
        rest.strip_prefix(' ')
    };
    // Linear: only refusals of a body get here.
    let found = GO_TYPES.lines().find_map(|line| of_field(&line));
    let mut words = found.into_iter().flat_map(|rest| rest.split(' '));
    GoField {
        go_type: words.next().filter(|t| *t != "-"),
        embedded: words.next(),
    }
}

/// The embedded structs that contain a field, as Go's paths name them.
pub(super) fn embedded(def: &TypeDef, field: &Field) -> Option<&'static str> {
    go_field(def, field.name).embedded
}

/// The type of an element of a Go type.
fn element(go_type: &'static str) -> Option<&'static str> {
    let inner = match go_type.strip_prefix("[]") {
        Some(inner) => inner,
        None => go_type.strip_prefix("map[")?.split_once(']')?.1,
    };
    Some(inner.trim_start_matches('*'))
}

/// The Go type of a value that is so many lists or maps below a field.
pub(super) fn go_type_below(def: &TypeDef, field: &Field, ty: Ty, below: usize) -> String {
    let mut known = go_field(def, field.name).go_type;
    for _ in 0..below {
        known = known.and_then(element);
    }
    known.map_or_else(|| go_type(ty), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_name;

    #[test]
    fn go_types_are_listed_for_existing_fields() {
        for line in GO_TYPES.lines().filter(|line| !line.starts_with('#')) {
            let (field, _) = line.split_once(' ').unwrap();
            let (def, field) = field.rsplit_once('.').unwrap();
            let def = by_name(&format!("io.k8s.{def}")).unwrap_or_else(|| panic!("{line}"));
            assert!(def.field(field).is_some(), "{line}");
        }
    }
}
