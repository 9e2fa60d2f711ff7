//! The static estimate: what an expression costs at most, from its form and the sizes in the schemas.

use crate::Environment;
use crate::ast::{Call, Expr, Kind, Literal, op};
use crate::checker::Checked;
use crate::cost::{quarter, tenth};
use crate::types::{Schema, Type};
use std::sync::Arc;

/// What is known about a subexpression.
#[derive(Clone)]
struct Known<'e> {
    cost: u64,
    /// The most elements, characters or bytes that the value has.
    size: u64,
    schema: Option<&'e Schema>,
}

pub(crate) fn estimate(root: &Expr, checked: &Checked, env: &Environment) -> u64 {
    let mut estimator = Estimator {
        checked,
        env,
        scopes: Vec::new(),
    };
    estimator.expr(root).cost
}

struct Estimator<'e> {
    checked: &'e Checked,
    env: &'e Environment,
    scopes: Vec<(Arc<str>, u64, Option<&'e Schema>)>,
}

/// The most that a value of the type can have if nothing else is known.
fn size_of(ty: &Type) -> u64 {
    match ty {
        Type::String | Type::Bytes | Type::List(_) | Type::Map(_) | Type::Dyn | Type::Optional(_) => u64::MAX,
        _ => 1,
    }
}

fn schema_size(schema: &Schema) -> u64 {
    schema.max_size.min(size_of(&schema.ty))
}

impl<'e> Estimator<'e> {
    fn known(&self, e: &Expr, cost: u64, schema: Option<&'e Schema>) -> Known<'e> {
        let size = schema.map_or_else(|| size_of(&self.checked.types[e.id]), schema_size);
        Known { cost, size, schema }
    }

    fn expr(&mut self, e: &Expr) -> Known<'e> {
        torana_apimachinery::interrupt::checkpoint();
        match &e.kind {
            Kind::Literal(literal) => Known {
                size: match literal {
                    Literal::String(s) => s.chars().count() as u64,
                    Literal::Bytes(b) => b.len() as u64,
                    _ => 1,
                },
                ..self.known(e, 0, None)
            },
            Kind::Ident(name) => {
                if let Some((_, size, schema)) = self.scopes.iter().rev().find(|(n, ..)| n == name) {
                    return Known {
                        cost: 1,
                        size: *size,
                        schema: *schema,
                    };
                }
                self.known(e, 1, self.env.variable(name))
            }
            Kind::Select(select) => {
                let operand = self.expr(&select.operand);
                let ty = &self.checked.types[select.operand.id];
                let charged = !select.test && matches!(ty, Type::Map(_) | Type::Object(_));
                let schema = if select.test {
                    None
                } else {
                    member(operand.schema, Some(&select.field))
                };
                self.known(e, operand.cost.saturating_add(charged.into()), schema)
            }
            Kind::List(elements) => {
                let costs = elements.iter().map(|el| self.expr(&el.value).cost);
                let cost = costs.fold(10, u64::saturating_add);
                Known {
                    size: elements.len() as u64,
                    ..self.known(e, cost, None)
                }
            }
            Kind::Map(entries) => {
                let costs = entries
                    .iter()
                    .map(|en| self.expr(&en.key).cost.saturating_add(self.expr(&en.value).cost));
                let cost = costs.fold(30, u64::saturating_add);
                Known {
                    size: entries.len() as u64,
                    ..self.known(e, cost, None)
                }
            }
            Kind::Fold(fold) => {
                let range = self.expr(&fold.range);
                let init = self.expr(&fold.init);
                let depth = self.scopes.len();
                self.scopes.push((fold.accumulator.clone(), init.size, init.schema));
                let items = range.schema.and_then(|s| s.items.as_deref());
                let items_size = |ty: Option<&Type>| items.map_or_else(|| ty.map_or(u64::MAX, size_of), schema_size);
                let (first, second) = match &self.checked.types[fold.range.id] {
                    Type::List(of) if fold.var2.is_some() => ((1, None), (items_size(Some(of)), items)),
                    Type::List(of) => ((items_size(Some(of)), items), (1, None)),
                    Type::Map(of) => ((size_of(&of.0), None), (items_size(Some(&of.1)), items)),
                    _ => ((u64::MAX, None), (u64::MAX, None)),
                };
                self.scopes.push((fold.var.clone(), first.0, first.1));
                if let Some(var2) = &fold.var2 {
                    self.scopes.push((var2.clone(), second.0, second.1));
                }
                let condition = self.expr(&fold.condition);
                let step = self.expr(&fold.step);
                self.scopes.truncate(depth);
                // Loops that collect have at most one element for each that they visit.
                let collects = matches!(self.checked.types[fold.init.id], Type::List(_) | Type::Map(_));
                let accumulated = if collects { range.size.max(init.size) } else { init.size };
                self.scopes.push((fold.accumulator.clone(), accumulated, init.schema));
                let result = self.expr(&fold.result);
                self.scopes.truncate(depth);
                let round = condition.cost.saturating_add(step.cost);
                let cost = range.cost.saturating_add(init.cost).saturating_add(result.cost);
                Known {
                    cost: cost.saturating_add(range.size.saturating_mul(round)),
                    ..result
                }
            }
            Kind::Call(call) => self.call(e, call),
        }
    }

    fn call(&mut self, e: &Expr, call: &Call) -> Known<'e> {
        let member_call = self.checked.calls[e.id].is_some_and(|(_, member)| member);
        let target = call.target.iter().filter(|_| member_call);
        let nodes: Vec<&Expr> = target.chain(&call.args).collect();
        let args: Vec<Known<'e>> = nodes.iter().map(|a| self.expr(a)).collect();
        let sum = args.iter().fold(0u64, |n, a| n.saturating_add(a.cost));
        let size = |i: usize| args.get(i).map_or(1, |a: &Known<'e>| a.size);
        let ty = |i: usize| nodes.get(i).map(|n| &self.checked.types[n.id]);
        let text = matches!(ty(0), Some(Type::String | Type::Bytes | Type::Dyn));
        let name = self.checked.calls[e.id].map_or(&*call.function, |(f, _)| f.name);
        let (own, out, schema) = match name {
            op::AND | op::OR => (0, 1, None),
            op::CONDITIONAL => {
                let worse = args[1].cost.max(args[2].cost);
                let same = args[1].schema.filter(|s| s.max_size >= size(2));
                return Known {
                    cost: args[0].cost.saturating_add(worse),
                    size: size(1).max(size(2)),
                    schema: same,
                };
            }
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => (tenth(size(0).min(size(1))), 1, None),
            "_+_" if text => {
                let total = size(0).saturating_add(size(1));
                (tenth(total), total, None)
            }
            "_+_" => (1, size(0).saturating_add(size(1)), args[0].schema),
            "@in" if matches!(ty(1), Some(Type::Map(_))) => (1, 1, None),
            "@in" => (size(1), 1, None),
            "matches" | "find" | "findAll" => {
                let cost = tenth(size(0).saturating_add(1)).saturating_mul(quarter(size(1)));
                (cost, if name == "matches" { 1 } else { size(0) }, None)
            }
            "contains" => (tenth(size(0)).saturating_mul(tenth(size(1))), 1, None),
            "startsWith" | "endsWith" => (tenth(size(1)), 1, None),
            "bytes" | "string" if text => (tenth(size(0)), size(0), None),
            "replace" => (size(0).div_ceil(5), size(0).saturating_mul(size(2).max(1)), None),
            "split" => (size(0).div_ceil(5), size(0), None),
            "join" => (size(0).div_ceil(10), u64::MAX, None),
            "lowerAscii" | "upperAscii" | "substring" | "trim" | "charAt" => (tenth(size(0)), size(0), None),
            "url" | "isURL" | "quantity" | "isQuantity" | "ip" | "isIP" | "cidr" | "isCIDR" | "semver" | "isSemver" => {
                (tenth(size(0)), 1, None)
            }
            "ip.isCanonical" => (size(0).div_ceil(5), 1, None),
            "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" => {
                let element = match ty(0) {
                    Some(Type::List(_)) => args[0].schema.and_then(|s| s.items.as_deref()).map_or(1, schema_size),
                    _ => 1,
                };
                (size(0).saturating_mul(tenth(element).max(1)).saturating_add(1), 1, None)
            }
            "distinct" | "reverse" | "flatten" | "sort" | "slice" | "@sortByAssociatedKeys" => {
                (size(0).saturating_add(1), size(0), args[0].schema)
            }
            "sets.contains" | "sets.intersects" => (size(0).saturating_mul(size(1)).saturating_add(1), 1, None),
            "sets.equivalent" => {
                let product = size(0).saturating_mul(size(1));
                (product.saturating_mul(2).saturating_add(1), 1, None)
            }
            op::INDEX => {
                let found = member(args[0].schema, None);
                let known = self.known(e, 0, found);
                (1, known.size, found)
            }
            _ => (1, size_of(&self.checked.types[e.id]), None),
        };
        Known {
            cost: sum.saturating_add(own),
            size: out,
            schema,
        }
    }
}

/// The schema of a field, or of the elements.
fn member<'e>(of: Option<&'e Schema>, name: Option<&str>) -> Option<&'e Schema> {
    let of = of?;
    match (&of.ty, name) {
        // The schema is borrowed from the environment, and its types with it.
        (Type::Object(fields), Some(name)) => fields.field(name).map(|f| &f.schema),
        _ => of.items.as_deref(),
    }
}
