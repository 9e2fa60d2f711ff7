//! The plan of an expression: the checked tree with every name resolved, constants folded, and the cost of each step
//! decided, which [`eval`](super::eval) walks.
//!
//! cel-go charges for chains of selections as wholes ("attributes"), and folds constant lists, maps and conversions. The
//! planner does likewise, so that costs agree.

mod fold;

use crate::ast::{Call as CallExpr, Element, Expr, Kind, Literal, Select as SelectExpr, Struct, op};
use crate::checker::{Callee, Checked, Reference};
use crate::cost::{self, CallCost};
use crate::library::{self, Body, Function};
use crate::types::{ObjectType, Type};
use crate::value::{Key, List, Text, Val};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A step.
pub(crate) enum Node {
    Const(Val<'static>),
    /// A declared variable.
    Variable {
        index: usize,
        charge: u64,
    },
    /// `has` of a declared variable: true unless its value is an error.
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
    Member(Box<Node>, BTreeSet<Key<'static>>),
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
    /// A value with a name.
    Bind {
        slot: usize,
        value: Box<Node>,
        result: Box<Node>,
    },
}

pub(crate) struct Select {
    pub operand: Node,
    pub field: Arc<str>,
    pub kind: Selection,
    /// Charged beyond the selection: for an operand that is no attribute itself.
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
    /// Of the lookup itself; attributes as indexes are charged for themselves.
    pub own: u64,
    pub charge: u64,
}

pub(crate) struct Call {
    pub function: &'static Function,
    pub run: library::Run,
    pub args: Box<[Node]>,
    pub cost: CallCost,
    /// True if the result is new, and larger than what the cost bounds.
    pub builds: bool,
    /// The compiled pattern, if it is constant.
    pub regex: Option<Regex>,
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
    /// True if an error of one element may be absorbed by another element.
    pub absorbs: bool,
}

/// A plan, and how many slots for variables of loops it needs.
pub(crate) struct Plan {
    pub root: Node,
    pub slots: usize,
}

/// The error is that of a constant whose conversion fails, or of a pattern that is not valid.
pub(crate) fn plan(root: &Expr, checked: &Checked) -> Result<Plan, String> {
    let mut planner = Planner {
        checked,
        scopes: Vec::new(),
        slots: 0,
    };
    let root = planner.expr(root)?;
    Ok(Plan {
        root,
        slots: planner.slots,
    })
}

struct Planner<'c> {
    checked: &'c Checked,
    scopes: Vec<Arc<str>>,
    slots: usize,
}

/// The value of a literal.
pub(crate) fn constant(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(b) => Val::Bool(*b),
        Literal::Int(n) => Val::Int(*n),
        Literal::Uint(n) => Val::Uint(*n),
        Literal::Double(f) => Val::Double(*f),
        Literal::String(s) => Val::String(Text::Shared(s.clone())),
        Literal::Bytes(b) => Val::Bytes(b.clone()),
    }
}

impl Node {
    /// True for what cel-go calls an attribute: what is selected from a variable, and conditionals.
    fn is_attribute(&self) -> bool {
        matches!(
            self,
            Self::Variable { .. } | Self::Local { .. } | Self::Select(_) | Self::Index(_) | Self::Conditional(_)
        )
    }

    fn as_const(&self) -> Option<&Val<'static>> {
        match self {
            Self::Const(v) => Some(v),
            _ => None,
        }
    }

    /// The attribute as a branch of a conditional, which is not charged for itself.
    fn uncharged(mut self) -> Self {
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

impl Planner<'_> {
    fn slot(&mut self, name: &Arc<str>) -> usize {
        self.scopes.push(name.clone());
        self.slots = self.slots.max(self.scopes.len());
        self.scopes.len() - 1
    }

    fn expr(&mut self, e: &Expr) -> Result<Node, String> {
        torana_apimachinery::interrupt::checkpoint();
        match &self.checked.references[e.id] {
            Reference::Variable(index) if matches!(&e.kind, Kind::Select(select) if select.test) => {
                return Ok(Node::Declared { index: *index });
            }
            Reference::Variable(index) => {
                return Ok(Node::Variable {
                    index: *index,
                    charge: 1,
                });
            }
            Reference::Type(of) => return Ok(Node::Const(Val::Type(of.runtime_name().into()))),
            _ => {}
        }
        Ok(match &e.kind {
            Kind::Literal(literal) => Node::Const(constant(literal)),
            Kind::Ident(name) => {
                let slot = self.scopes.iter().rposition(|n| n == name);
                Node::Local {
                    slot: slot.expect("the checker resolved every name"),
                    charge: 1,
                }
            }
            Kind::Select(select) => self.select(select)?,
            Kind::Call(call) => self.call(e, call)?,
            Kind::List(elements) => self.list(elements)?,
            Kind::Map(entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for entry in entries {
                    nodes.push((self.expr(&entry.key)?, self.expr(&entry.value)?, entry.optional));
                }
                fold::map(nodes)
            }
            Kind::Struct(of) => self.object(e, of)?,
            Kind::Fold(fold) => self.fold(fold)?,
        })
    }

    fn list(&mut self, elements: &[Element]) -> Result<Node, String> {
        let mut nodes = Vec::with_capacity(elements.len());
        for element in elements {
            nodes.push((self.expr(&element.value)?, element.optional));
        }
        let values: Option<Vec<_>> = nodes.iter().map(|(n, _)| n.as_const().cloned()).collect();
        Ok(match values {
            Some(values) if nodes.iter().all(|(_, optional)| !optional) => Node::Const(values.into()),
            _ => Node::List(nodes.into()),
        })
    }

    fn object(&mut self, e: &Expr, of: &Struct) -> Result<Node, String> {
        let Reference::Object(ty) = &self.checked.references[e.id] else {
            unreachable!("the checker resolved every type")
        };
        let mut nodes = Vec::with_capacity(of.fields.len());
        for field in &of.fields {
            nodes.push((field.name.clone(), self.expr(&field.value)?, field.optional));
        }
        Ok(Node::Object(ty.clone(), nodes.into()))
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Node, String> {
        let operand = self.expr(&select.operand)?;
        let kind = if select.test { Selection::Test } else { Selection::Plain };
        Ok(selection(operand, select.field.clone(), kind))
    }

    fn call(&mut self, e: &Expr, call: &CallExpr) -> Result<Node, String> {
        if &*call.function == op::OPT_SELECT {
            let operand = self.expr(&call.args[0])?;
            let Kind::Literal(Literal::String(field)) = &call.args[1].kind else {
                unreachable!("the parser makes a string of the field")
            };
            return Ok(selection(operand, field.clone(), Selection::Optional));
        }
        let Reference::Function(callee) = &self.checked.references[e.id] else {
            unreachable!("the checker resolved every call")
        };
        let target = call.target.iter().filter(|_| callee.member);
        if let Some(append) = self.append(callee, call)? {
            return Ok(append);
        }
        let mut args = Vec::with_capacity(call.args.len() + 1);
        for arg in target.chain(&call.args) {
            args.push(self.expr(arg)?);
        }
        self.apply(callee, args)
    }

    fn apply(&self, callee: &Callee, mut args: Vec<Node>) -> Result<Node, String> {
        let function = callee.function;
        let run = match function.body {
            Body::And | Body::Or | Body::Conditional | Body::NotStrictlyFalse => {
                let mut next = || args.remove(0);
                return Ok(match function.body {
                    Body::And => Node::And(Box::new([next(), next()])),
                    Body::Or => Node::Or(Box::new([next(), next()])),
                    Body::NotStrictlyFalse => Node::NotStrictlyFalse(Box::new(next())),
                    _ => Node::Conditional(Box::new([next(), next().uncharged(), next().uncharged()])),
                });
            }
            Body::Strict(run) => run,
        };
        if matches!(function.name, op::INDEX | op::OPT_INDEX) {
            let index = args.pop().expect("an index has two operands");
            let operand = args.pop().expect("an index has two operands");
            let own = match &index {
                Node::Conditional(_) => 0,
                index => u64::from(!index.is_attribute()),
            };
            return Ok(Node::Index(Box::new(Index {
                charge: u64::from(!operand.is_attribute()),
                operand,
                index,
                optional: function.name == op::OPT_INDEX,
                own,
            })));
        }
        let overload = callee.overload();
        if let ("cel.@mapInsert", Some(Node::Local { slot, .. })) = (function.name, args.first()) {
            args[0] = Node::Taken { slot: *slot };
        }
        if function.name == op::IN
            && matches!(overload.map(|o| &o.params[1]), Some(Type::List(_)))
            && let Some(members) = args[1].as_const().and_then(members)
        {
            return Ok(Node::Member(Box::new(args.swap_remove(0)), members));
        }
        if let (true, [Node::Const(value)]) = (function.converts(), args.as_slice()) {
            return match run(&mut [value.clone()]) {
                Ok(value) => Ok(Node::Const(value)),
                Err(why) => Err(why.to_string()),
            };
        }
        let pattern = match (function.name, args.get(1)) {
            ("matches" | "find" | "findAll", Some(Node::Const(Val::String(pattern)))) => Some(pattern),
            _ => None,
        };
        let regex = match pattern.map(|p| library::regex::compile(p)) {
            Some(Ok(regex)) => Some(regex),
            Some(Err(why)) => return Err(why),
            None => None,
        };
        Ok(Node::Call(Box::new(Call {
            function,
            run,
            args: args.into(),
            cost: cost::of_call(function.name, overload),
            builds: matches!(
                function.name,
                "_+_"
                    | "replace"
                    | "join"
                    | "format"
                    | "flatten"
                    | "split"
                    | "findAll"
                    | "strings.quote"
                    | "lists.range"
            ),
            regex,
        })))
    }
}

fn selection(operand: Node, field: Arc<str>, kind: Selection) -> Node {
    Node::Select(Box::new(Select {
        charge: u64::from(!operand.is_attribute() && kind != Selection::Test),
        operand,
        field,
        kind,
    }))
}

/// The elements of a list of strings, numbers and booleans.
fn members(list: &Val<'static>) -> Option<BTreeSet<Key<'static>>> {
    let Val::List(List::Shared(items)) = list else {
        return None;
    };
    items.iter().map(Key::find).collect()
}
