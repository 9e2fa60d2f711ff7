//! Upstream's internal form of a definition, in which it is validated. Fields that are equal in all versions
//! (schema, subresources, columns, selectable fields) move to the top of the spec, and the paths in error
//! messages show them there (`k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/conversion.go`).

use super::printed;
use crate::apimachinery::value::Value;
use crate::interrupt::pause;

static NULL: Value = Value::Null;

/// The fields that a version has for itself, or that all versions share.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) schema: &'a Value,
    pub(super) subresources: &'a Value,
    pub(super) columns: &'a Value,
    pub(super) selectable: &'a Value,
}

pub(super) struct Version<'a> {
    /// The version as it was sent.
    pub(super) sent: &'a Value,
    /// The fields that differ between versions.
    pub(super) own: Parts<'a>,
}

pub(super) struct Internal<'a> {
    pub(super) versions: Vec<Version<'a>>,
    /// The fields that all versions share.
    pub(super) shared: Parts<'a>,
    /// Whether a version has subresources that not all share.
    own_subresources: bool,
    /// Whether the definition has no list of versions, not even an empty one.
    absent: bool,
}

impl<'a> Parts<'a> {
    const NONE: Self = Self {
        schema: &NULL,
        subresources: &NULL,
        columns: &NULL,
        selectable: &NULL,
    };

    /// The OpenAPI schema, if there is one.
    pub(super) fn open_api_schema(&self) -> Option<&'a Value> {
        Some(self.schema.get("openAPIV3Schema")).filter(|s| !s.is_null())
    }

    pub(super) fn has_status(&self) -> bool {
        !self.subresources.get("status").is_null()
    }
}

/// True if two parts of versions are equal in Go (`Semantic.DeepEqual`), for which an empty list or map is an absent
/// one. Validation sees those of the body.
fn same(a: &Value, b: &Value) -> bool {
    a == b || equal(a, b, false)
}

/// As [`same`]; `by_name` is true for maps, whose names are those of properties and not of keywords.
fn equal(a: &Value, b: &Value, by_name: bool) -> bool {
    pause();
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut a = a.iter().filter(|(k, v)| by_name || !is_unset(k, v));
            let mut b = b.iter().filter(|(k, v)| by_name || !is_unset(k, v));
            let same_member = |((k, a), (l, b)): ((&str, &Value), (&str, &Value))| {
                k == l
                    && match k {
                        _ if by_name => equal(a, b, false),
                        // Any JSON.
                        "default" | "enum" | "example" => a == b,
                        _ => equal(a, b, MAPS.contains(&k)),
                    }
            };
            // Both are sorted by name.
            a.all(|member| b.next().is_some_and(|other| same_member((member, other)))) && b.next().is_none()
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b, false)),
        (Value::Null, Value::Array(items)) | (Value::Array(items), Value::Null) => items.is_empty(),
        _ => a == b,
    }
}

/// The keywords of schemas that are maps in Go.
const MAPS: [&str; 4] = ["definitions", "dependencies", "patternProperties", "properties"];

/// True if Go has no value for a keyword, or an empty list or map.
fn is_unset(keyword: &str, v: &Value) -> bool {
    match v {
        Value::Null => true,
        // There is a pointer to the lists of these.
        Value::Array(items) => items.is_empty() && !matches!(keyword, "default" | "example" | "items"),
        Value::Object(members) => members.is_empty() && MAPS.contains(&keyword),
        _ => false,
    }
}

impl<'a> Internal<'a> {
    pub(super) fn of(definition: &'a Value) -> Self {
        let sent = definition.at(&["spec", "versions"]);
        let mut versions: Vec<Version<'a>> = sent
            .items()
            .iter()
            .map(|v| Version {
                sent: v,
                own: Parts {
                    schema: v.get("schema"),
                    subresources: v.get("subresources"),
                    columns: v.get("additionalPrinterColumns"),
                    selectable: v.get("selectableFields"),
                },
            })
            .collect();
        let mut shared = Parts::NONE;
        let members: [for<'p> fn(&'p mut Parts<'a>) -> &'p mut &'a Value; 4] = [
            |p| &mut p.schema,
            |p| &mut p.subresources,
            |p| &mut p.columns,
            |p| &mut p.selectable,
        ];
        for member in members {
            // Compared pointwise per member: a member moves up only if every version has the same value.
            let part = |v: &mut Version<'a>| *member(&mut v.own);
            let Some(first) = versions.first_mut().map(part) else {
                break;
            };
            // A single version shares everything with itself, so its parts always move to the top.
            if versions.iter_mut().all(|v| same(part(v), first)) {
                *member(&mut shared) = first;
                versions.iter_mut().for_each(|v| *member(&mut v.own) = &NULL);
            }
        }
        let own_subresources = versions.iter().any(|v| !v.own.subresources.is_null());
        Self {
            versions,
            shared,
            own_subresources,
            absent: sent.is_null(),
        }
    }

    /// Every schema of the definition, once.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        let own = self.versions.iter().filter_map(|v| v.own.open_api_schema());
        // Shared schemas are visited once instead of once per version.
        self.shared.open_api_schema().into_iter().chain(own)
    }

    /// The subresources of a version, whether it shares them or not.
    pub(super) fn has_status(&self, version: &Version<'a>) -> bool {
        match self.own_subresources {
            // As upstream, subresources count as per version as soon as one version has its own.
            true => version.own.has_status(),
            false => self.shared.has_status(),
        }
    }

    /// The versions as upstream prints them, cut after what fits into an error.
    pub(super) fn print_versions(&self) -> String {
        // Go prints a nil slice as null, an empty one as a list.
        if self.absent {
            return "null".to_owned();
        }
        let mut out = String::from("[");
        for (i, Version { sent, own }) in self.versions.iter().enumerate() {
            if out.len() > printed::LIMIT {
                return out;
            }
            if i > 0 {
                out.push(',');
            }
            let parts = [own.schema, own.subresources, own.columns, own.selectable];
            out.push_str(&printed::version(sent, parts));
        }
        out.push(']');
        out
    }
}
