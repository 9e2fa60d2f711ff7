//! The evaluator. [`Machine::run`] walks the plan of a program, charges the cost of every step, and stops when the
//! limit is exceeded. Loops are in `fold`; functions are in `library`, and what their calls cost is in `cost`.

mod fold;

use crate::plan::{Call, Index, Node, Regex, Select, Selection};
use crate::types::ObjectType;
use crate::value::json_patch;
use crate::value::{Dict, Fail, NO_OVERLOAD, Out, Record, Text, Val, error, no_overload};
use crate::{Activation, PatternBudget, Program, library};
use std::collections::BTreeMap;
use std::sync::Arc;
use torana_apimachinery::Str;
use torana_apimachinery::interrupt::checkpoint;

pub(crate) struct Machine<'p, 'a> {
    program: &'a Program,
    activation: &'p dyn Activation<'a>,
    /// Variables that were read before.
    variables: Vec<Option<Out<'a>>>,
    /// Variables of loops.
    locals: Vec<Out<'a>>,
    /// Locals that have not been evaluated yet.
    unread: Vec<Option<&'a Node>>,
    /// Cost of each value of `Node::Twice`.
    repeated: Vec<u64>,
    pub cost: u64,
    limit: u64,
    /// Bytes that may yet be allocated for strings and lists whose size the cost does not bound.
    memory: usize,
    patterns: &'p PatternBudget,
}

/// Maximum bytes of computed strings and lists in one evaluation. cel-go shares the parts of lists that are
/// added, and charges nothing for what `replace` builds.
const MEMORY: usize = 64 << 20;

/// The member of an object or map, if it is present. A null field counts as absent.
pub(crate) fn field<'a>(of: &Val<'a>, name: &'a str) -> Option<Out<'a>> {
    match of {
        Val::Object(m, ty) => {
            let field = ty.field(name)?;
            // Nulls count as absent because Kubernetes drops them before evaluating rules.
            let v = m.get(&field.key).filter(|v| !v.is_null())?;
            Some(Val::of(v, &field.schema))
        }
        Val::Map(map) => map.member(name),
        Val::Record(record) => record.field(name),
        // cel-go indexes lists by name as well, and fails with this error.
        Val::List(_) => Some(library::no_index(&Val::from(name))),
        _ => None,
    }
}

impl<'p, 'a> Machine<'p, 'a> {
    pub(crate) fn new(
        program: &'a Program,
        activation: &'p dyn Activation<'a>,
        limit: u64,
        patterns: &'p PatternBudget,
    ) -> Self {
        let mut variables = Vec::new();
        // Filled on first use: a policy declares many variables of which an expression reads few.
        variables.resize_with(program.variables.len(), || None);
        let mut locals = Vec::new();
        locals.resize_with(program.plan.slots, || Ok(Val::Null));
        Self {
            program,
            activation,
            variables,
            locals,
            unread: vec![None; program.plan.slots],
            repeated: vec![0; program.plan.slots],
            cost: 0,
            limit,
            memory: MEMORY,
            patterns,
        }
    }

    pub(crate) fn run(&mut self) -> Out<'a> {
        self.expr(&self.program.plan.root)
    }

    fn charge(&mut self, cost: u64) -> Result<(), Fail> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            Err(Fail::Cost)
        } else {
            Ok(())
        }
    }

    fn expr(&mut self, node: &'a Node) -> Out<'a> {
        match node {
            // Constants are strings of the program, which outlives the values: borrowing saves a reference count per
            // read.
            Node::Const(Val::String(Text::Shared(s))) => Ok(Val::String(Text::Borrowed(s))),
            Node::Const(v) => Ok(v.clone()),
            Node::Variable { index, charge } => {
                self.charge(*charge)?;
                self.variable(*index)
            }
            Node::Declared { index } => {
                self.charge(1)?;
                self.variable(*index).map(|_| Val::Bool(true))
            }
            Node::Local { slot, charge } => {
                // Taken before it is evaluated, so that a recursive read cannot evaluate it again.
                if let Some(value) = self.unread[*slot].take() {
                    // The error is stored like a value: a second read costs no second evaluation.
                    self.locals[*slot] = self.expr(value);
                }
                self.charge(*charge)?;
                self.locals[*slot].clone()
            }
            Node::Again { slot } => {
                self.charge(self.repeated[*slot])?;
                self.locals[*slot].clone()
            }
            Node::Taken { slot } => {
                self.charge(1)?;
                // Moved out, so that the map insert that follows changes it in place instead of copying it.
                std::mem::replace(&mut self.locals[*slot], Ok(Val::Null))
            }
            Node::Select(select) => self.select(select),
            Node::Index(index) => self.index(index),
            Node::And(operands) => self.logical(operands, false),
            Node::Or(operands) => self.logical(operands, true),
            Node::Conditional(parts) => match self.expr(&parts[0])? {
                Val::Bool(true) => self.expr(&parts[1]).map(collapsed),
                Val::Bool(false) => self.expr(&parts[2]).map(collapsed),
                _ => no_overload(),
            },
            Node::NotStrictlyFalse(of) => {
                // The loop condition: errors mean to go on, and only the cost limit ends it.
                let value = self.expr(of);
                self.charge(1)?;
                match value {
                    Err(Fail::Cost) => Err(Fail::Cost),
                    Ok(Val::Bool(false)) => Ok(Val::Bool(false)),
                    _ => Ok(Val::Bool(true)),
                }
            }
            Node::Member(of, members) => {
                let value = self.expr(of)?;
                Ok(Val::Bool(members.contains(&value)))
            }
            Node::Call(call) => self.call(call),
            Node::Append { slot, element, charge } => self.append(*slot, element, *charge),
            Node::List(elements) => {
                let list = self.list(elements);
                self.created(list, 10)
            }
            Node::Map(entries) => {
                let map = self.map(entries);
                self.created(map, 30)
            }
            Node::Object(of, fields) => {
                let object = self.object(of, fields);
                self.created(object, 40)
            }
            Node::Fold(fold) => self.fold(fold),
            Node::Bind { slot, value, result } => {
                // Evaluated where the result first reads it, so an unused binding costs nothing.
                self.unread[*slot] = Some(value);
                let result = self.expr(result);
                // The result may not have read it; the slot is reused by other bindings.
                self.unread[*slot] = None;
                result
            }
            Node::Twice { slot, value, result } => {
                let before = self.cost;
                self.locals[*slot] = Ok(self.expr(value)?);
                // cel-go evaluates the target twice, so the second read is charged what the first has cost.
                self.repeated[*slot] = self.cost - before;
                self.expr(result)
            }
            Node::Alternative { operands, value } => match self.expr(&operands[0])? {
                Val::Optional(None) => self.expr(&operands[1]),
                Val::Optional(Some(v)) if *value => Ok(v.as_ref().clone()),
                other => Ok(other),
            },
        }
    }

    /// Charges a list, map or object, even if a part of it is an error.
    fn created(&mut self, out: Out<'a>, cost: u64) -> Out<'a> {
        if !matches!(out, Err(Fail::Cost)) {
            self.charge(cost)?;
        }
        out
    }

    fn object(&mut self, of: &Arc<ObjectType>, fields: &'a [(Arc<str>, Node, bool)]) -> Out<'a> {
        // Collected before any is set: an error in a later value has to win over one in the type.
        let mut values = Vec::with_capacity(fields.len());
        for (name, value, optional) in fields {
            match (self.expr(value)?, optional) {
                (v, false) => values.push((name, v)),
                (Val::Optional(v), true) => values.extend(v.map(|v| (name, v.as_ref().clone()))),
                (v, true) => {
                    return error(format!(
                        "cannot initialize optional entry '{name}' from non-optional value {}",
                        library::format_value(&v)
                    ));
                }
            }
        }
        let mut out = BTreeMap::new();
        for (name, value) in values {
            // JSON patches have fields that depend on each other, which `set` checks.
            match Arc::ptr_eq(of, &json_patch::TYPE) {
                true => json_patch::set(&mut out, name, value)?,
                false => drop(out.insert(Str::new(name), value)),
            }
        }
        Ok(Val::Record(Arc::new(Record {
            of: of.clone(),
            fields: out,
        })))
    }

    fn variable(&mut self, index: usize) -> Out<'a> {
        if let Some(known) = &self.variables[index] {
            return known.clone();
        }
        let name = &self.program.variables[index];
        let value = match self.activation.variable(name) {
            Some(value) => value,
            None => error(format!("no such attribute(s): {name}")),
        };
        // Cached with its error: the activation may compute it, and cel-go memoises variables as well.
        self.variables[index] = Some(value.clone());
        value
    }

    fn select(&mut self, select: &'a Select) -> Out<'a> {
        let operand = self.expr(&select.operand)?;
        let (of, optional) = match &operand {
            // Selecting from nothing is nothing, whatever the field.
            Val::Optional(None) => {
                self.charge(select.charge)?;
                return Ok(match select.kind {
                    Selection::Test => Val::Bool(false),
                    _ => Val::Optional(None),
                });
            }
            Val::Optional(Some(of)) => (of.as_ref(), true),
            of => (of, select.kind == Selection::Optional),
        };
        let found = match of {
            // Unset fields of a constructed object count as absent.
            Val::Record(record) if optional || select.kind == Selection::Test => {
                Ok(record.fields.get(&*select.field).cloned())
            }
            of => field(of, &select.field).transpose(),
        };
        if select.kind == Selection::Test {
            // `has` is charged once per test in cel-go, regardless of the depth.
            self.charge(1)?;
            return found.map(|found| Val::Bool(found.is_some()));
        }
        // An absent optional member is not charged as a selection.
        self.charge(select.charge + u64::from(!optional || !matches!(found, Ok(None))))?;
        match found? {
            found if optional => Ok(wrap(found)),
            Some(v) => Ok(v),
            None => error(format!("no such key: {}", select.field)),
        }
    }

    fn index(&mut self, node: &'a Index) -> Out<'a> {
        let operand = self.expr(&node.operand)?;
        let index = self.expr(&node.index)?;
        let (of, optional) = match &operand {
            Val::Optional(None) => {
                self.charge(node.charge)?;
                return Ok(Val::Optional(None));
            }
            Val::Optional(Some(of)) => (of.as_ref(), true),
            of => (of, node.optional),
        };
        let found = library::element(of, &index).transpose();
        self.charge(node.charge + u64::from(!optional || !matches!(found, Ok(None))))?;
        match found? {
            found if optional => Ok(wrap(found)),
            Some(v) => Ok(v),
            None if matches!(of, Val::List(_)) => {
                error(format!("index out of bounds: {}", library::format_value(&index)))
            }
            None => error(format!("no such key: {}", library::format_value(&index))),
        }
    }

    fn call(&mut self, call: &'a Call) -> Out<'a> {
        checkpoint();
        match &*call.args {
            [] => self.invoke(call, &mut []),
            [a] => match self.expr(a) {
                Ok(a) => self.invoke(call, &mut [a]),
                Err(Fail::Cost) => Err(Fail::Cost),
                // Null stands for the failed argument, because costs are computed from the arguments.
                Err(why) => self.in_vain(call, why, &[Val::Null]),
            },
            [a, b] => {
                // Both are evaluated, and the call is charged, even if one has an error.
                let (a, b) = (self.expr(a), self.expr(b));
                match (a, b) {
                    (Ok(a), Ok(b)) => self.invoke(call, &mut [a, b]),
                    (Err(Fail::Cost), _) | (_, Err(Fail::Cost)) => Err(Fail::Cost),
                    (Err(why), other) => self.in_vain(call, why, &[Val::Null, other.unwrap_or_default()]),
                    (Ok(a), Err(why)) => self.in_vain(call, why, &[a, Val::Null]),
                }
            }
            nodes => {
                let mut args = Vec::with_capacity(nodes.len());
                for node in nodes {
                    match self.expr(node) {
                        Ok(arg) => args.push(arg),
                        // With more than two arguments, those after an error are not evaluated. The call is
                        // charged only if there are none.
                        Err(Fail::Error(why)) if args.len() + 1 == nodes.len() => {
                            args.push(Val::Null);
                            return self.in_vain(call, Fail::Error(why), &args);
                        }
                        Err(why) => return Err(why),
                    }
                }
                self.invoke(call, &mut args)
            }
        }
    }

    /// Charges a call of which an argument is an error. Errors are charged for like values without parts.
    fn in_vain(&mut self, call: &'a Call, why: Fail, args: &[Val<'a>]) -> Out<'a> {
        self.charge(call.cost.before(args))?;
        self.charge(call.cost.after(&Val::Null))?;
        Err(why)
    }

    fn invoke(&mut self, call: &'a Call, args: &mut [Val<'a>]) -> Out<'a> {
        // The cost charged before the call bounds its work.
        self.charge(call.cost.before(args))?;
        let pattern = match &call.regex {
            Regex::None => None,
            Regex::Constant(pattern) => Some(Some(pattern)),
            Regex::Computed => Some(None),
        };
        let out = match pattern {
            Some(pattern) => library::regex::run(call.function.name, pattern, args, self.patterns),
            None => (call.run)(args),
        };
        match out {
            Ok(out) => {
                self.charge(call.cost.after(&out))?;
                if call.builds {
                    // Exceeding memory is reported like exceeding cost, since Kubernetes has no separate failure for
                    // it.
                    self.memory = self.memory.checked_sub(memory_of(&out)).ok_or(Fail::Cost)?;
                }
                Ok(out)
            }
            Err(Fail::Error(why)) => {
                self.charge(call.cost.after(&Val::Null))?;
                error(match &*why {
                    // With a constant pattern, cel-go calls the compiled expression without checking the
                    // types.
                    NO_OVERLOAD if matches!(call.regex, Regex::Constant(_)) => why,
                    NO_OVERLOAD => library::no_overload_text(call.function.name, args),
                    _ => why,
                })
            }
            Err(Fail::Cost) => Err(Fail::Cost),
        }
    }

    /// `&&` and `||`: an operand that decides the result absorbs an error of the other.
    fn logical(&mut self, operands: &'a [Node; 2], decisive: bool) -> Out<'a> {
        let mut failure = None;
        // Both operands are evaluated unless one decides, even behind an error: it may be absorbed.
        for operand in operands {
            match self.expr(operand) {
                Ok(Val::Bool(b)) if b == decisive => return Ok(Val::Bool(decisive)),
                Ok(Val::Bool(_)) => {}
                Err(Fail::Cost) => return Err(Fail::Cost),
                Ok(_) => failure = failure.or(Some(Fail::Error(NO_OVERLOAD.into()))),
                // The first failure is reported.
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    fn list(&mut self, elements: &'a [(Node, bool)]) -> Out<'a> {
        let mut out = Vec::with_capacity(elements.len());
        for (element, optional) in elements {
            match (self.expr(element)?, optional) {
                (v, false) => out.push(v),
                (Val::Optional(v), true) => out.extend(v.map(|v| v.as_ref().clone())),
                (v, true) => {
                    let v = library::format_value(&v);
                    return error(format!(
                        "cannot initialize optional list element from non-optional value {v}"
                    ));
                }
            }
        }
        Ok(out.into())
    }

    fn map(&mut self, entries: &'a [(Node, Node, bool)]) -> Out<'a> {
        let mut out = BTreeMap::new();
        for (key, value, optional) in entries {
            // cel-go evaluates the key before the value, and so errors come in that order.
            let key = self.expr(key)?;
            let value = self.expr(value)?;
            let value = match (value, optional) {
                (v, false) => v,
                (Val::Optional(Some(v)), true) => v.as_ref().clone(),
                (Val::Optional(None), true) => continue,
                (v, true) => {
                    let (key, v) = (library::format_value(&key), library::format_value(&v));
                    return error(format!(
                        "cannot initialize optional entry '{key}' from non-optional value {v}"
                    ));
                }
            };
            // As in cel-go, the last one of equal keys counts.
            out.insert(library::key(&key)?, value);
        }
        Ok(Val::Map(Dict::Shared(Arc::new(out))))
    }
}

/// cel-go takes an optional apart where it selects a branch, and loses one of two levels.
fn collapsed(v: Val<'_>) -> Val<'_> {
    match v {
        Val::Optional(Some(inner)) => match inner.as_ref() {
            Val::Optional(None) => Val::Optional(Some(Arc::new(Val::Null))),
            Val::Optional(Some(_)) => inner.as_ref().clone(),
            _ => Val::Optional(Some(inner)),
        },
        v => v,
    }
}

fn memory_of(v: &Val<'_>) -> usize {
    match v {
        Val::String(s) => s.len(),
        Val::Bytes(b) => b.len(),
        Val::List(list) => list.len() * size_of::<Val<'_>>(),
        _ => 0,
    }
}

/// The result of an optional selection.
fn wrap(found: Option<Val<'_>>) -> Val<'_> {
    Val::Optional(found.map(Arc::new))
}
