//! [`Node`]: a step of a plan. The planner makes them from checked expressions with every name, overload and slot
//! resolved, so that the evaluator looks nothing up.

use crate::cost::CallCost;
use crate::library::regex::Pattern;
use crate::library::{self, Function};
use crate::types::ObjectType;
use crate::value::{Key, List, Val};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A step of a plan; evaluating the root runs the program.
pub(crate) enum Node {
    Const(Val<'static>),
    /// A declared variable, by its place in the activation.
    Variable {
        index: usize,
        charge: u64,
    },
    /// `has` of a declared variable: true unless reading it fails.
    Declared {
        index: usize,
    },
    /// A variable of a loop.
    Local {
        slot: usize,
        charge: u64,
    },
    /// The accumulator of a loop, moved into the call that changes it.
    Taken {
        slot: usize,
    },
    Select(Box<Select>),
    Index(Box<Index>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Conditional(Box<[Node; 3]>),
    NotStrictlyFalse(Box<Node>),
    /// Whether a value is in a constant list.
    Member(Box<Node>, Members),
    Call(Box<Call>),
    /// The accumulator of a loop with one more element.
    Append {
        slot: usize,
        element: Box<Node>,
        charge: u64,
    },
    List(Box<[(Node, bool)]>),
    Map(Box<[(Node, Node, bool)]>),
    Object(Arc<ObjectType>, Box<[(Arc<str>, Node, bool)]>),
    Fold(Box<Fold>),
    /// A value with a name, evaluated when it is first read.
    Bind {
        slot: usize,
        value: Box<Node>,
        result: Box<Node>,
    },
    /// A value that the result has twice: it is evaluated once, and charged again where it is read again.
    Twice {
        slot: usize,
        value: Box<Node>,
        result: Box<Node>,
    },
    /// The second read of the value of [`Node::Twice`].
    Again {
        slot: usize,
    },
    /// `or` and `orValue` of optionals.
    Alternative {
        operands: Box<[Node; 2]>,
        value: bool,
    },
}

pub(crate) struct Select {
    pub operand: Node,
    pub field: Arc<str>,
    pub kind: Selection,
    /// Charged in addition to the selection, if the operand is not an attribute itself.
    pub charge: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// `operand.field`
    Plain,
    /// `operand.?field`
    Optional,
    /// `has(operand.field)`
    Test,
}

pub(crate) struct Index {
    pub operand: Node,
    pub index: Node,
    pub optional: bool,
    /// Charged in addition to the lookup, if the operand is not an attribute itself.
    pub charge: u64,
}

pub(crate) struct Call {
    pub function: &'static Function,
    pub run: library::Run,
    pub args: Box<[Node]>,
    pub cost: CallCost,
    /// True if the result is newly allocated and may be larger than its cost implies.
    pub builds: bool,
    pub regex: Regex,
}

/// The pattern of a call that takes one.
pub(crate) enum Regex {
    None,
    Constant(Pattern),
    Computed,
}

pub(crate) struct Fold {
    pub range: Node,
    pub init: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
    pub accumulator: usize,
    pub var: usize,
    pub var2: Option<usize>,
}

impl Node {
    /// True for an attribute in the sense of cel-go: a variable with selections, or a conditional.
    pub(super) fn is_attribute(&self) -> bool {
        matches!(
            self,
            // Conditionals count because cel-go resolves them lazily as conditional attributes.
            Self::Variable { .. } | Self::Local { .. } | Self::Select(_) | Self::Index(_) | Self::Conditional(_)
        )
    }

    pub(super) fn as_const(&self) -> Option<&Val<'static>> {
        match self {
            Self::Const(v) => Some(v),
            _ => None,
        }
    }

    /// The attribute as a part of another one (a branch, an index, the operand of `has`), which has no cost
    /// of its own.
    pub(super) fn uncharged(mut self) -> Self {
        // Walks down the chain: each part loses its charge, up to the first that is not an attribute.
        let mut node = &mut self;
        loop {
            node = match node {
                Self::Variable { charge, .. } | Self::Local { charge, .. } => {
                    *charge = 0;
                    break;
                }
                Self::Select(select) => {
                    select.charge = 0;
                    if !select.operand.is_attribute() {
                        break;
                    }
                    &mut select.operand
                }
                Self::Index(index) => {
                    index.charge = 0;
                    if !index.operand.is_attribute() {
                        break;
                    }
                    &mut index.operand
                }
                _ => break,
            };
        }
        self
    }
}

/// The elements of a constant list of strings, numbers and booleans.
#[derive(Default)]
pub(crate) struct Members {
    keys: BTreeSet<Key<'static>>,
    /// Doubles that are not integers, as bits.
    doubles: BTreeSet<u64>,
}

impl Members {
    pub(super) fn of(list: &Val<'static>) -> Option<Self> {
        let Val::List(List::Shared(items)) = list else {
            return None;
        };
        let mut members = Self::default();
        for item in items.iter() {
            match (Key::find(item), item) {
                (Some(key), _) => drop(members.keys.insert(key)),
                // Bits, because doubles have no order; equal doubles other than zeros have equal bits, and zeros are
                // found as keys.
                (None, Val::Double(f)) => drop(members.doubles.insert(f.to_bits())),
                _ => return None,
            }
        }
        Some(members)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.doubles.is_empty()
    }

    pub(crate) fn contains(&self, v: &Val<'_>) -> bool {
        match (Key::find(v), v) {
            (Some(key), _) => self.keys.contains(&key),
            // NaN equals nothing, also itself.
            (None, Val::Double(f)) => !f.is_nan() && self.doubles.contains(&f.to_bits()),
            _ => false,
        }
    }
}
