//! Equality and order of values, as CEL defines them: across the numeric types, and for lists of a structural schema
//! by their list type (sets and maps compare without order).

use super::{Dict, Fail, Key, List, Val, error, no_overload};
use crate::types::{DYN, ListType, ObjectType};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use torana_apimachinery::Map;

impl<'a> Val<'a> {
    /// CEL equality: numbers are compared by value; values of different types are unequal.
    pub(crate) fn equals(&self, other: &Self) -> Result<bool, Fail> {
        // Values whose parts are shared may take far more comparisons than their cost suggests.
        torana_apimachinery::interrupt::checkpoint();
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => **a == **b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => a.equals(b)?,
            (Self::Quantity(a, _), Self::Quantity(b, _)) => (**a).cmp(b) == Ordering::Equal,
            (Self::Net(a), Self::Net(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a.compare(b) == Ordering::Equal,
            (Self::List(a), Self::List(b)) => return same_lists(a, b),
            (Self::Map(a), Self::Map(b)) => {
                // Sizes first, because entries have to be built.
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (key, a) in a.entries()? {
                    let Some(b) = b.get(&key) else { return Ok(false) };
                    if !a.equals(&b?)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Object(a, of), Self::Object(b, _)) => return same_objects(a, b, of),
            // The type of at least one side is unknown: fields are compared as entries.
            (Self::Object(a, _), Self::Map(b)) | (Self::Map(b), Self::Object(a, _)) => {
                return Self::Map(Dict::Tree(a, &DYN)).equals(&Self::Map(b.clone()));
            }
            (Self::Record(a), Self::Record(b)) => {
                if a.of != b.of || a.fields.len() != b.fields.len() {
                    return Ok(false);
                }
                for ((k, a), (l, b)) in a.fields.iter().zip(&b.fields) {
                    if k != l || !a.equals(b)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Authority(a), Self::Authority(b)) => a.equals(b),
            // Formats are static, so the same one has the same address.
            (Self::Format(a), Self::Format(b)) => std::ptr::eq(*a, *b),
            (a, b) => a.number_cmp(b) == Some(Ordering::Equal),
        })
    }

    /// False if `==` with the other value is an error. Values of Kubernetes compare only with those of their
    /// type: its own types, and what has a schema. And upstream's quantities do not recognise sums on their
    /// right.
    pub(crate) fn compares_with(&self, other: &Self) -> bool {
        let only_its_like = match self {
            Self::Quantity(..) => return matches!(other, Self::Quantity(_, false)),
            // Upstream compares none of these with each other.
            Self::Authority(_) => return false,
            Self::Net(_) | Self::Url(_) | Self::Semver(_) | Self::Format(_) | Self::Object(..) => true,
            Self::List(List::Tree(_, of)) | Self::Map(Dict::Tree(_, of)) => !of.ty.is_dyn(),
            _ => false,
        };
        !only_its_like || self.type_name() == other.type_name()
    }

    /// The order of two numbers, which may be of different types; `None` for anything else and for NaN.
    pub(crate) fn number_cmp(&self, other: &Self) -> Option<Ordering> {
        /// As doubles: large integers lose their last digits.
        fn against(n: i128, f: f64) -> Option<Ordering> {
            (n as f64).partial_cmp(&f)
        }
        let whole = |v: &Self| match v {
            Self::Int(n) => Some(i128::from(*n)),
            Self::Uint(n) => Some(i128::from(*n)),
            _ => None,
        };
        match (self, other, whole(self), whole(other)) {
            // Integers compare exactly in 128 bits, whatever their signs.
            (_, _, Some(a), Some(b)) => Some(a.cmp(&b)),
            (Self::Double(a), Self::Double(b), ..) => a.partial_cmp(b),
            (_, Self::Double(b), Some(a), _) => against(a, *b),
            (Self::Double(a), _, _, Some(b)) => against(b, *a).map(Ordering::reverse),
            _ => None,
        }
    }

    /// The order of two values that `<` compares.
    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, Fail> {
        Ok(match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => (**a).cmp(&**b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Duration(a), Self::Duration(b)) => a.cmp(b),
            (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(b),
            // NaN is reported before incompatible types.
            (Self::Double(a), _) if a.is_nan() => return error("NaN values cannot be ordered"),
            (_, Self::Double(b)) if b.is_nan() => return error("NaN values cannot be ordered"),
            (a, b) => match a.number_cmp(b) {
                Some(order) => order,
                None => return no_overload(),
            },
        })
    }
}

/// Lists are compared by index, or by value or key if the left one is a set or a map list.
fn same_lists<'a>(a: &List<'a>, b: &List<'a>) -> Result<bool, Fail> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.list_type() {
        ListType::Atomic => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !a?.equals(&b?)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        kind => {
            let index = index(a, kind)?;
            // Lists have equal lengths, and elements of sets and keyed lists are unique, so one direction suffices.
            for item in b.iter() {
                let item = item?;
                let Some(own) = index.get(&identity(&item, kind)) else {
                    return Ok(false);
                };
                if !own.equals(&item)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// The identity of an element in a set or a keyed list; a part is `None` if the element lacks it or it cannot be a
/// key.
pub(crate) fn identity<'a>(item: &Val<'a>, kind: &ListType) -> Vec<Option<Key<'a>>> {
    match (kind, item) {
        (ListType::Map(keys), Val::Object(m, _)) => keys
            .iter()
            .map(|k| m.get(k).and_then(|v| Val::of(v, &DYN).ok()).and_then(|v| Key::find(&v)))
            .collect(),
        (ListType::Map(keys), Val::Map(m)) => keys
            .iter()
            .map(|k| {
                m.get(&k.as_str().into())
                    .and_then(Result::ok)
                    .and_then(|v| Key::find(&v))
            })
            .collect(),
        (_, item) => vec![Key::find(item)],
    }
}

fn index<'a>(list: &List<'a>, kind: &ListType) -> Result<BTreeMap<Vec<Option<Key<'a>>>, Val<'a>>, Fail> {
    list.iter()
        .map(|item| item.map(|item| (identity(&item, kind), item)))
        .collect()
}

/// Declared fields are compared as values; others only if both objects have them, as they are.
fn same_objects<'a>(a: &'a Map, b: &'a Map, of: &'a ObjectType) -> Result<bool, Fail> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, value) in a.iter() {
        let Some(field) = of.field_of(key) else {
            if b.get(key).is_some_and(|other| other != value) {
                return Ok(false);
            }
            continue;
        };
        // A null field counts as absent on either side.
        let same = match (value, b.get(key).filter(|v| !v.is_null())) {
            (value, None) => value.is_null(),
            (value, Some(_)) if value.is_null() => false,
            (value, Some(other)) => Val::of(value, &field.schema)?.equals(&Val::of(other, &field.schema)?)?,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}
