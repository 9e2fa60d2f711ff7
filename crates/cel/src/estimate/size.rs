//! [`Size`] and [`Entries`]: the least and the largest length that a value can have, with the saturating arithmetic
//! of the estimator.

use crate::types::Type;

/// Minimum and maximum number of characters, bytes or elements of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub min: u64,
    pub max: u64,
}

/// The sizes of the elements of a list or map literal.
#[derive(Clone, Debug)]
pub(super) struct Entries {
    pub list: bool,
    pub key: Size,
    pub value: Size,
}

impl Size {
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }

    /// The union of the sizes of the elements.
    pub(super) fn none(empty: bool) -> Self {
        Self {
            // The neutral element of `union`, unless there are no elements at all.
            min: if empty { 0 } else { u64::MAX },
            max: 0,
        }
    }

    /// The size of values of the type, if all have one.
    pub(super) fn of_type(ty: &Type) -> Option<Self> {
        match ty {
            Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
                Some(Self::exactly(1))
            }
            Type::Optional(of) => Self::of_type(of),
            _ => None,
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

impl Entries {
    pub(super) fn union(&self, other: &Self) -> Self {
        Self {
            list: self.list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

/// A cost or size times a factor, rounded up.
pub(super) fn scaled(n: u64, factor: f64) -> u64 {
    let scaled = (n as f64 * factor).ceil();
    // The conversion saturates.
    scaled as u64
}
