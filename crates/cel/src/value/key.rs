//! [`Key`]: a key of a computed map, in the order in which the map keeps its entries. Maps of the input need none;
//! their keys are strings.

use super::{Text, Val};
use std::cmp::Ordering;

/// A key of a computed map. Numbers that are equal are the same key, whatever their type.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are the language's")]
pub enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => (**a).cmp(&**b),
            (Self::Bool(_), _) | (_, Self::String(_)) => Ordering::Less,
            (_, Self::Bool(_)) | (Self::String(_), _) => Ordering::Greater,
            // In 128 bits, so that equal numbers of both types are the same key.
            (a, b) => a.number().cmp(&b.number()),
        }
    }
}

impl<'a> Key<'a> {
    fn number(&self) -> i128 {
        match self {
            Self::Int(n) => (*n).into(),
            Self::Uint(n) => (*n).into(),
            Self::Bool(_) | Self::String(_) => 0,
        }
    }

    /// The key that a value is looked up by; `None` if no map has such keys.
    pub(crate) fn find(v: &Val<'a>) -> Option<Self> {
        Some(match v {
            Val::Bool(b) => Self::Bool(*b),
            Val::Int(n) => Self::Int(*n),
            Val::Uint(n) => Self::Uint(*n),
            // Both bounds are exact as doubles; 2^63 itself is excluded.
            Val::Double(f) if f.fract() == 0.0 && *f >= -(2f64.powi(63)) && *f < 2f64.powi(63) => Self::Int(*f as i64),
            Val::Double(f) if f.fract() == 0.0 && *f > 0.0 && *f < 2f64.powi(64) => Self::Uint(*f as u64),
            Val::String(s) => Self::String(s.clone()),
            _ => return None,
        })
    }

    pub(crate) fn val(&self) -> Val<'a> {
        match self {
            Self::Bool(b) => Val::Bool(*b),
            Self::Int(n) => Val::Int(*n),
            Self::Uint(n) => Val::Uint(*n),
            Self::String(s) => Val::String(s.clone()),
        }
    }
}
