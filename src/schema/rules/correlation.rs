//! Decides whether the failure of a rule is ratcheted: it is if the rule's value, or the nearest enclosing
//! value that can be correlated with the old object, is unchanged.

use crate::apimachinery::value::Value;
use crate::schema::Node;
use crate::schema::ratchet::unchanged;

/// A value and the old one that corresponds to it.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) node: &'a Node,
    pub(super) new: &'a Value,
    pub(super) old: Option<&'a Value>,
}

impl Pair<'_> {
    fn is_unchanged(&self) -> bool {
        self.old.is_some_and(|old| unchanged(self.node, self.new, old))
    }
}

/// The values that decide whether a failure is ratcheted.
#[derive(Clone, Copy)]
pub(super) struct Correlation<'a> {
    /// The value itself, if there is an old one.
    pub(super) this: Option<Pair<'a>>,
    /// Otherwise the nearest around it that has one.
    pub(super) nearest: Option<Pair<'a>>,
}

impl<'a> Correlation<'a> {
    pub(super) const NONE: Self = Self {
        this: None,
        nearest: None,
    };

    pub(super) fn is_unchanged(&self) -> bool {
        // Compared only when a rule has failed: comparing every value would be quadratic in the depth.
        self.this.or(self.nearest).is_some_and(|pair| pair.is_unchanged())
    }

    pub(super) fn part(self, node: &'a Node, new: &'a Value, old: Option<&'a Value>) -> Self {
        // Once the chain is broken, everything below belongs to the nearest correlated value.
        if self.this.is_none() {
            return self;
        }
        let pair = Pair { node, new, old };
        Self {
            this: Some(pair).filter(|p| p.old.is_some()),
            nearest: self.this,
        }
    }
}
