//! Ways for a field to grow, and values of any length for each.

use crate::make::{Variation, least, pairs, vary};
use crate::sites::Site;
use torana::api::{ListType, Ty};
use torana::apimachinery::Value;
use torana::json;

/// A way for a field to grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Elements or members with different identities.
    Distinct(Variation),
    /// Copies of one element.
    Equal,
    /// Empty elements.
    Empty,
    /// Members with keys that are always invalid.
    WrongKeys,
    /// A string that repeats these characters.
    Text(&'static str),
    /// A free-form value with many members.
    Members,
    /// A free-form value with many levels.
    Nested,
}

/// Fragments of structured strings: names, paths, lists, expressions, escapes.
pub(crate) const TEXTS: [&str; 8] = ["a", "a.", "a/b,", "{[(\"", "1", "$(A)", "é\n", "%41=*"];

impl Growth {
    /// The ways in which a site can grow.
    pub(crate) fn of(site: &Site, element_variation: Variation) -> Vec<Self> {
        use Growth::{Distinct, Empty, Equal, Members, Nested, Text, WrongKeys};
        match site.ty {
            Ty::List(_) => vec![Distinct(element_variation), Equal, Empty, Distinct(Variation::Wrong)],
            Ty::Map(_) => vec![Distinct(Variation::Keys), WrongKeys],
            Ty::Any(_) => vec![Members, Nested],
            _ => TEXTS.map(Text).to_vec(),
        }
    }

    /// The name used in messages.
    pub(crate) fn shown(self) -> String {
        match self {
            Self::Distinct(Variation::Wrong) => "distinct invalid elements".into(),
            Self::Distinct(_) => "distinct elements".into(),
            Self::Equal => "equal elements".into(),
            Self::Empty => "empty elements".into(),
            Self::WrongKeys => "distinct invalid keys".into(),
            Self::Text(unit) => format!("a text of {unit:?}"),
            Self::Members => "distinct members".into(),
            Self::Nested => "nested objects".into(),
        }
    }

    /// The initial lengths, chosen to take some 20 ms; the first is an eighth of the second.
    pub(crate) fn lengths(self, site: &Site) -> [usize; 2] {
        match self {
            Self::Text(_) => [2 << 10, 16 << 10],
            Self::Nested => [50, 400],
            _ if site.ty.struct_def().is_some() => [96, 768],
            _ => [128, 1024],
        }
    }

    /// The field's value at this length, with elements derived from the first one of `whole`.
    pub(crate) fn value(self, site: &Site, whole: &Value, n: usize) -> Value {
        let (key, sample) = match whole {
            Value::Array(items) => ("", items.first()),
            Value::Object(members) => members.iter().next().map_or(("k", None), |(k, v)| (k, Some(v))),
            _ => ("k", None),
        };
        let sample = &sample.cloned().unwrap_or_default();
        let keys: &[&str] = match site.field.list {
            ListType::Map(keys) => keys,
            _ => &[],
        };
        let choices = site.owner.enumeration(site.field.name);
        match (self, site.ty) {
            (Self::Distinct(how), Ty::List(inner)) => {
                Value::Array((0..n).map(|i| vary(sample, *inner, choices, keys, how, i)).collect())
            }
            (Self::Equal, Ty::List(_)) => Value::Array(vec![sample.clone(); n]),
            (Self::Empty, Ty::List(inner)) => Value::Array(vec![empty(*inner); n]),
            (Self::Distinct(_), Ty::Map(_)) => pairs((0..n).map(|i| (format!("{key}{i}"), sample.clone()))),
            (Self::WrongKeys, Ty::Map(_)) => pairs((0..n).map(|i| (format!("-!{i}"), sample.clone()))),
            (Self::Members, _) => pairs((0..n).map(|i| (format!("k{i}"), json!("v")))),
            (Self::Nested, _) => (0..n).fold(json!("v"), |inner, _| pairs([("k".to_owned(), inner)])),
            (Self::Text(unit), Ty::Bytes) => {
                use base64::Engine as _;
                json!(base64::engine::general_purpose::STANDARD.encode(unit.repeat(n / unit.len())))
            }
            (Self::Text(unit), _) => json!(unit.repeat(n / unit.len())),
            (Self::Distinct(_) | Self::Equal | Self::Empty | Self::WrongKeys, ty) => least(ty, &[]),
        }
    }
}

fn empty(ty: Ty) -> Value {
    match ty {
        Ty::Struct(_) | Ty::SchemaOr(_) | Ty::Map(_) | Ty::Any(_) => Value::object(),
        Ty::List(_) => Value::Array(Vec::new()),
        Ty::String | Ty::Bytes => json!(""),
        ty => least(ty, &[]),
    }
}
