//! The plan of an expression: the checked tree with every name resolved, constants folded, and the cost of
//! each step decided, which [`eval`](super::eval) walks.
//!
//! cel-go charges for chains of selections as wholes ("attributes"), and folds constant lists, maps and
//! conversions. The planner does likewise, so that costs agree.

mod fold;
mod node;

pub(crate) use node::{Call, Fold, Index, Members, Node, Regex, Select, Selection};

use crate::ast::{Call as CallExpr, Element, Expr, ExprKind, Literal, Select as SelectExpr, Struct, op};
use crate::checker::{Checked, Reference};
use crate::cost;
use crate::library::regex::{self, Pattern, PatternError};
use crate::library::{self, Body, Callee};
use crate::parser::macros::TARGET;
use crate::types::Type;
use crate::value::{Fail, NO_OVERLOAD, Text, Val};
use std::sync::Arc;

/// A plan, and the number of slots that its loop variables need.
pub(crate) struct Plan {
    pub root: Node,
    pub slots: usize,
}

/// Why a well-typed expression has no plan, in the words that cel-go has when it makes a program of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// A selection has no type. cel-go finds out when it converts the checked expression.
    #[error("missing type conversion to proto: ")]
    Untyped,
    #[error("reference to undefined type: {0}")]
    UndefinedType(String),
    /// A constant cannot be an index.
    #[error("invalid qualifier type: {0}")]
    Qualifier(&'static str),
    /// A conversion does not take the type of its constant.
    #[error("no such overload: {function}({given})")]
    NoOverload { function: &'static str, given: String },
    /// The conversion of a constant fails.
    #[error(transparent)]
    Constant(#[from] Fail),
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// Plans a checked expression.
pub(crate) fn plan(root: &Expr, checked: &Checked) -> Result<Plan, PlanError> {
    let mut planner = Planner {
        checked,
        scopes: Vec::new(),
        slots: 0,
        states: regex::MAX_TOTAL_STATES,
    };
    // Such a selection passes the checker, but cel-go fails on it when it converts the checked expression.
    if checked.types.contains(&Type::Opaque("")) {
        return Err(PlanError::Untyped);
    }
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
    /// Remaining states for constant patterns.
    states: u32,
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

impl Planner<'_> {
    fn local(&self, name: &str) -> usize {
        // Innermost first: a loop variable hides an outer one of the same name.
        let slot = self.scopes.iter().rposition(|n| &**n == name);
        slot.expect("the checker resolved every name")
    }

    fn slot(&mut self, name: &Arc<str>) -> usize {
        self.scopes.push(name.clone());
        // Slots are reused after a scope ends; the machine needs as many as are ever open at once.
        self.slots = self.slots.max(self.scopes.len());
        self.scopes.len() - 1
    }

    fn expr(&mut self, e: &Expr) -> Result<Node, PlanError> {
        torana_apimachinery::interrupt::checkpoint();
        match &self.checked.references[e.id] {
            // `has(a.b)` where `a.b` is a declared variable.
            Reference::Variable(index) if matches!(&e.kind, ExprKind::Select(select) if select.test) => {
                return Ok(Node::Declared { index: *index });
            }
            Reference::Variable(index) => {
                return Ok(Node::Variable {
                    index: *index,
                    charge: 1,
                });
            }
            Reference::Type(Type::Object(of)) if of.is_open() => {
                return Err(PlanError::UndefinedType(of.name.to_string()));
            }
            Reference::Type(of) => return Ok(Node::Const(Val::Type(of.runtime_name().into()))),
            _ => {}
        }
        Ok(match &e.kind {
            ExprKind::Literal(literal) => Node::Const(constant(literal)),
            ExprKind::Ident(name) => Node::Local {
                slot: self.local(name),
                // The target of an optional macro is charged by `Node::Twice` and `Node::Again` instead.
                charge: u64::from(&**name != TARGET),
            },
            ExprKind::Select(select) => self.select(select)?,
            ExprKind::Call(call) => self.call(e, call)?,
            ExprKind::List(elements) => self.list(elements)?,
            ExprKind::Map(entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for entry in entries {
                    nodes.push((self.expr(&entry.key)?, self.expr(&entry.value)?, entry.optional));
                }
                fold::map(nodes)
            }
            ExprKind::Struct(of) => self.object(e, of)?,
            ExprKind::Fold(fold) => self.fold(fold)?,
        })
    }

    fn list(&mut self, elements: &[Element]) -> Result<Node, PlanError> {
        let mut nodes = Vec::with_capacity(elements.len());
        for element in elements {
            nodes.push((self.expr(&element.value)?, element.optional));
        }
        // Folded only if all elements are constant: cel-go charges nothing for such lists.
        let values: Option<Vec<_>> = nodes.iter().map(|(n, _)| n.as_const().cloned()).collect();
        Ok(match values {
            // An optional element may be absent, which only the evaluation knows.
            Some(values) if nodes.iter().all(|(_, optional)| !optional) => Node::Const(values.into()),
            _ => Node::List(nodes.into()),
        })
    }

    fn object(&mut self, e: &Expr, of: &Struct) -> Result<Node, PlanError> {
        let Reference::Object(ty) = &self.checked.references[e.id] else {
            unreachable!("the checker resolved every type")
        };
        let mut nodes = Vec::with_capacity(of.fields.len());
        for field in &of.fields {
            nodes.push((field.name.clone(), self.expr(&field.value)?, field.optional));
        }
        Ok(Node::Object(ty.clone(), nodes.into()))
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Node, PlanError> {
        let operand = self.expr(&select.operand)?;
        let kind = if select.test { Selection::Test } else { Selection::Plain };
        Ok(selection(operand, select.field.clone(), kind))
    }

    fn call(&mut self, e: &Expr, call: &CallExpr) -> Result<Node, PlanError> {
        if &*call.function == op::OPT_SELECT {
            let operand = self.expr(&call.args[0])?;
            let ExprKind::Literal(Literal::String(field)) = &call.args[1].kind else {
                unreachable!("the parser makes a string of the field")
            };
            return Ok(selection(operand, field.clone(), Selection::Optional));
        }
        let Reference::Function(callee) = &self.checked.references[e.id] else {
            unreachable!("the checker resolved every call")
        };
        let target = call.target.iter().filter(|_| callee.member);
        // `optMap` reads its target a second time through `value()`; `Again` charges for it without evaluating it
        // twice.
        if callee.function.name == "value"
            && let Some(ExprKind::Ident(name)) = call.target.as_ref().map(|t| &t.kind)
            && &**name == TARGET
        {
            let again = Node::Again {
                slot: self.local(TARGET),
            };
            return self.apply(callee, vec![again]);
        }
        // Before the arguments are planned: appending must not plan the accumulator as an ordinary read.
        if let Some(append) = self.append(callee, call)? {
            return Ok(append);
        }
        let mut args = Vec::with_capacity(call.args.len() + 1);
        for arg in target.chain(&call.args) {
            args.push(self.expr(arg)?);
        }
        self.apply(callee, args)
    }

    fn apply(&mut self, callee: &Callee, mut args: Vec<Node>) -> Result<Node, PlanError> {
        let function = callee.function;
        let run = match &function.body {
            Body::Strict(run) => *run,
            lazy => return Ok(not_strict(lazy, args)),
        };
        if matches!(function.name, op::INDEX | op::OPT_INDEX) {
            return index(function.name, args);
        }
        let overload = callee.overload();
        // Taken instead of read, so that the map has one owner and is changed in place; a copy per round would be
        // quadratic.
        if let ("cel.@mapInsert", Some(Node::Local { slot, .. })) = (function.name, args.first()) {
            args[0] = Node::Taken { slot: *slot };
        }
        if function.name == op::IN
            && matches!(overload.map(|o| &o.params[1]), Some(Type::List(_)))
            && let Some(members) = args[1].as_const().and_then(Members::of)
        {
            // cel-go folds membership in an empty list as well.
            if members.is_empty() {
                return Ok(Node::Const(Val::Bool(false)));
            }
            return Ok(Node::Member(Box::new(args.swap_remove(0)), members));
        }
        // Conversions of constants are folded, which makes their errors errors of the program.
        if let (true, [Node::Const(value)]) = (function.converts(), args.as_slice()) {
            return match run(&mut [value.clone()]) {
                Ok(value) => Ok(Node::Const(value)),
                Err(Fail::Error(why)) if why == NO_OVERLOAD => Err(PlanError::NoOverload {
                    function: function.name,
                    given: value.type_name().to_owned(),
                }),
                Err(why) => Err(why.into()),
            };
        }
        let run = match (function.name, overload.and_then(|o| o.params.first())) {
            // The sum of an empty list needs the type of the elements, which only the overload has.
            ("sum", Some(Type::List(of))) => library::sum_of(of),
            _ => run,
        };
        let regex = self.regex(function.name, args.get(1))?;
        Ok(Node::Call(Box::new(Call {
            function,
            run,
            args: args.into(),
            cost: cost::of_call(function.name, overload),
            // Calls whose result may be much larger than their cost.
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

    /// The pattern of a function that takes one as its second argument.
    fn regex(&mut self, function: &str, pattern: Option<&Node>) -> Result<Regex, PlanError> {
        if !regex::is_one(function) {
            return Ok(Regex::None);
        }
        let Some(Node::Const(Val::String(source))) = pattern else {
            return Ok(Regex::Computed);
        };
        let pattern = Pattern::new(source)?;
        // Compiled patterns stay in memory with the program, so all of them together are limited.
        let left = self.states.checked_sub(pattern.states());
        self.states = left.ok_or_else(|| PatternError::TooLarge((**source).into()))?;
        Ok(Regex::Constant(pattern))
    }
}

/// A call that may leave operands unevaluated. The checker guarantees their number.
fn not_strict(body: &Body, mut args: Vec<Node>) -> Node {
    let mut next = || args.remove(0);
    match body {
        Body::And => Node::And(Box::new([next(), next()])),
        Body::Or => Node::Or(Box::new([next(), next()])),
        Body::Alternative { value } => Node::Alternative {
            operands: Box::new([next(), next()]),
            value: *value,
        },
        Body::NotStrictlyFalse => Node::NotStrictlyFalse(Box::new(next())),
        // `Conditional`. The branches are attributes within one attribute, so only the condition is charged for
        // itself.
        _ => Node::Conditional(Box::new([next(), next().uncharged(), next().uncharged()])),
    }
}

/// `operand[index]`, or `operand[?index]`.
fn index(operator: &str, mut args: Vec<Node>) -> Result<Node, PlanError> {
    let index = args.pop().expect("an index has two operands");
    let operand = args.pop().expect("an index has two operands");
    // cel-go rejects such a constant when it builds the attribute, before any evaluation.
    if let Some(kind) = index.as_const().and_then(no_qualifier) {
        return Err(PlanError::Qualifier(kind));
    }
    // An attribute used as an index is resolved as a part of the outer one.
    let index = if index.is_attribute() { index.uncharged() } else { index };
    Ok(Node::Index(Box::new(Index {
        charge: u64::from(!operand.is_attribute()),
        operand,
        index,
        optional: operator == op::OPT_INDEX,
    })))
}

/// cel-go's name for the type of a constant that cannot be an index.
fn no_qualifier(index: &Val<'_>) -> Option<&'static str> {
    match index {
        Val::Null => Some("types.Null"),
        Val::Bytes(_) => Some("types.Bytes"),
        Val::Duration(_) => Some("types.Duration"),
        Val::Timestamp(_) => Some("types.Timestamp"),
        Val::List(_) => Some("*types.baseList"),
        Val::Map(_) => Some("*types.baseMap"),
        Val::Type(_) => Some("*types.Type"),
        _ => None,
    }
}

fn selection(operand: Node, field: Arc<str>, kind: Selection) -> Node {
    // cel-go charges a chain as one attribute: `has` drops its charge, a first selection from a computed value adds
    // one.
    let (charge, operand) = match (operand.is_attribute(), kind) {
        (true, Selection::Test) => (0, operand.uncharged()),
        (attribute, _) => (u64::from(!attribute && kind != Selection::Test), operand),
    };
    Node::Select(Box::new(Select {
        charge,
        operand,
        field,
        kind,
    }))
}
