//! The evaluator: walks the checked tree, charges the cost of every step, and stops when the limit is exceeded.

use crate::ast::{Call, Expr, Fold, Kind, Literal, op};
use crate::cost;

use crate::library::{self, Body, key as standard_key};
use crate::value::{Dict, Fail, Out, Text, Val, error, no_overload};
use crate::{Program, Variable};
use std::collections::BTreeMap;
use std::sync::Arc;
use torana_apimachinery::interrupt::checkpoint;

pub(crate) struct Machine<'p, 'a> {
    program: &'p Program,
    variables: &'p [Variable<'a>],
    locals: Vec<(Arc<str>, Out<'a>)>,
    pub cost: u64,
    limit: u64,
}

/// The member of an object or map, if it is there. A field that is null is not.
pub(crate) fn field<'a>(of: &Val<'a>, name: &str) -> Option<Out<'a>> {
    match of {
        Val::Object(m, ty) => {
            let field = ty.field(name)?;
            let v = m.get(&field.key).filter(|v| !v.is_null())?;
            Some(Val::of(v, &field.schema))
        }
        Val::Map(map) => map.get(&name.into()),
        _ => Some(no_overload()),
    }
}

impl<'p, 'a> Machine<'p, 'a> {
    pub fn new(program: &'p Program, variables: &'p [Variable<'a>], limit: u64) -> Self {
        Self {
            program,
            variables,
            locals: Vec::new(),
            cost: 0,
            limit,
        }
    }

    pub fn run(&mut self) -> Out<'a> {
        self.expr(&self.program.root)
    }

    fn charge(&mut self, cost: u64) -> Result<(), Fail> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            Err(Fail::Cost)
        } else {
            Ok(())
        }
    }

    fn expr(&mut self, e: &'p Expr) -> Out<'a> {
        match &e.kind {
            Kind::Literal(literal) => Ok(constant(literal)),
            Kind::Ident(name) => {
                self.charge(1)?;
                self.ident(name)
            }
            Kind::Select(select) => {
                let operand = self.expr(&select.operand)?;
                if select.test {
                    return Ok(Val::Bool(match &operand {
                        Val::Optional(None) => false,
                        Val::Optional(Some(v)) => field(v, &select.field).transpose()?.is_some(),
                        v => field(v, &select.field).transpose()?.is_some(),
                    }));
                }
                self.charge(1)?;
                if let Val::Optional(_) = operand {
                    return optional_field(&operand, &select.field);
                }
                field(&operand, &select.field).unwrap_or_else(|| error(format!("no such key: {}", select.field)))
            }
            Kind::Call(call) => self.call(e, call),
            Kind::List(elements) => {
                self.charge(10)?;
                let mut out = Vec::with_capacity(elements.len());
                for element in elements {
                    match (self.expr(&element.value)?, element.optional) {
                        (Val::Optional(v), true) => out.extend(v.map(|v| v.as_ref().clone())),
                        (_, true) => return no_overload(),
                        (v, false) => out.push(v),
                    }
                }
                Ok(out.into())
            }
            Kind::Map(entries) => {
                self.charge(30)?;
                let mut out = BTreeMap::new();
                for entry in entries {
                    let key = standard_key(&self.expr(&entry.key)?)?;
                    let value = match (self.expr(&entry.value)?, entry.optional) {
                        (Val::Optional(None), true) => continue,
                        (Val::Optional(Some(v)), true) => v.as_ref().clone(),
                        (_, true) => return no_overload(),
                        (v, false) => v,
                    };
                    let shown = library::shown(&key.val());
                    if out.insert(key, value).is_some() {
                        return error(format!("Failed with repeated key: {shown}"));
                    }
                }
                Ok(Val::Map(Dict::Shared(Arc::new(out))))
            }
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn ident(&self, name: &str) -> Out<'a> {
        if let Some((_, v)) = self.locals.iter().rev().find(|(n, _)| &**n == name) {
            return v.clone();
        }
        if let Some(variable) = self.variables.iter().find(|v| v.name == name) {
            return Ok(variable.value.clone());
        }
        if library::TYPE_NAMES.contains(&name) {
            return Ok(Val::Type(name.into()));
        }
        error(format!("no such attribute(s): {name}"))
    }

    /// An argument. The accumulator of a loop is moved, so that the call can change it in place.
    fn argument(&mut self, e: &'p Expr) -> Out<'a> {
        match (&e.kind, self.locals.iter().rposition(|(n, _)| &**n == "@result")) {
            (Kind::Ident(name), Some(i)) if &**name == "@result" => {
                self.charge(1)?;
                std::mem::replace(&mut self.locals[i].1, Ok(Val::Null))
            }
            _ => self.expr(e),
        }
    }

    fn call(&mut self, e: &'p Expr, call: &'p Call) -> Out<'a> {
        if &*call.function == op::OPT_SELECT {
            let operand = self.expr(&call.args[0])?;
            self.charge(1)?;
            let Kind::Literal(Literal::String(name)) = &call.args[1].kind else {
                return no_overload();
            };
            return optional_field(&operand, name);
        }
        let (function, member) = self.program.calls[e.id].expect("the checker resolved every call");
        match function.body {
            Body::And => self.logical(call, false),
            Body::Or => self.logical(call, true),
            Body::Conditional => match self.expr(&call.args[0])? {
                Val::Bool(true) => self.expr(&call.args[1]),
                Val::Bool(false) => self.expr(&call.args[2]),
                _ => no_overload(),
            },
            Body::NotStrictlyFalse => {
                self.charge(1)?;
                match self.expr(&call.args[0]) {
                    Err(Fail::Cost) => Err(Fail::Cost),
                    Ok(Val::Bool(false)) => Ok(Val::Bool(false)),
                    _ => Ok(Val::Bool(true)),
                }
            }
            Body::Strict(run) => {
                checkpoint();
                let moves = matches!(function.name, op::ADD | "cel.@mapInsert");
                let mut args = Vec::with_capacity(call.args.len() + 1);
                if let (true, Some(target)) = (member, &call.target) {
                    args.push(self.expr(target)?);
                }
                for arg in &call.args {
                    args.push(if moves { self.argument(arg)? } else { self.expr(arg)? });
                }
                self.charge(cost::of_call(function.name, &args))?;
                let out = run(&mut args)?;
                self.charge(cost::of_result(function.name, &out))?;
                Ok(out)
            }
        }
    }

    /// `&&` and `||`: an operand that decides the result absorbs an error of the other.
    fn logical(&mut self, call: &'p Call, decisive: bool) -> Out<'a> {
        let mut failure = None;
        for arg in &call.args {
            match self.expr(arg) {
                Ok(Val::Bool(b)) if b == decisive => return Ok(Val::Bool(decisive)),
                Ok(Val::Bool(_)) => {}
                Err(Fail::Cost) => return Err(Fail::Cost),
                Ok(_) => failure = failure.or(Some(Fail::Error("no such overload".into()))),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    fn fold(&mut self, fold: &'p Fold) -> Out<'a> {
        let range = self.expr(&fold.range)?;
        let init = self.expr(&fold.init);
        let depth = self.locals.len();
        self.locals.push((fold.accumulator.clone(), init));
        let out = self.iterate(fold, &range, depth);
        self.locals.truncate(depth + 1);
        let out = out.and_then(|()| self.expr(&fold.result));
        self.locals.truncate(depth);
        out
    }

    fn iterate(&mut self, fold: &'p Fold, range: &Val<'a>, depth: usize) -> Result<(), Fail> {
        let two = fold.var2.is_some();
        match range {
            Val::List(list) => {
                for (i, item) in list.iter().enumerate() {
                    let (first, second) = if two {
                        (Ok(Val::Int(i as i64)), Some(item))
                    } else {
                        (item, None)
                    };
                    if !self.step(fold, first, second, depth)? {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                for (key, value) in map.entries()? {
                    if !self.step(fold, Ok(key), two.then_some(Ok(value)), depth)? {
                        break;
                    }
                }
            }
            _ => return no_overload(),
        }
        Ok(())
    }

    fn step(&mut self, fold: &'p Fold, first: Out<'a>, second: Option<Out<'a>>, depth: usize) -> Result<bool, Fail> {
        checkpoint();
        self.locals.push((fold.var.clone(), first));
        if let (Some(name), Some(v)) = (&fold.var2, second) {
            self.locals.push((name.clone(), v));
        }
        let go_on = self.expr(&fold.condition);
        let more = match go_on {
            Err(Fail::Cost) => return Err(Fail::Cost),
            Ok(Val::Bool(false)) => false,
            _ => match self.expr(&fold.step) {
                Err(Fail::Cost) => return Err(Fail::Cost),
                next => {
                    self.locals[depth].1 = next;
                    true
                }
            },
        };
        self.locals.truncate(depth + 1);
        Ok(more)
    }
}

fn optional_field<'a>(of: &Val<'a>, name: &str) -> Out<'a> {
    let of = match of {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(v)) => v,
        v => v,
    };
    let found = field(of, name).transpose()?;
    Ok(match found {
        Some(v @ Val::Optional(_)) => v,
        found => Val::Optional(found.map(Arc::new)),
    })
}

fn constant<'a>(literal: &Literal) -> Val<'a> {
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
