//! The static cost estimate: an upper bound from the form of the expression and the sizes in the schemas. It
//! decides which rules a definition may have, so it reproduces the numbers of cel-go and Kubernetes, oddities
//! included.

mod call;
mod size;

use crate::Environment;
use crate::ast::{Expr, ExprKind, Fold, Literal};
use crate::checker::{Checked, Reference};
use crate::parser::macros::{TARGET, is_bind};
use crate::types::{Schema, Type};
use size::{Entries, Size};
use std::sync::Arc;

/// The place in the declared schemas that a value comes from.
#[derive(Clone, Copy)]
enum Place<'e> {
    /// No place. The first selection from there leads to the root, because cel-go then takes it for the name
    /// of a variable.
    Nowhere,
    /// A place with a schema, or one that the schemas do not have.
    At(Option<&'e Schema>),
}

/// The place and the size of a subexpression's value.
#[derive(Clone)]
struct Estimated<'e> {
    cost: u64,
    place: Place<'e>,
    /// The size, if it follows from the form.
    size: Option<Size>,
    entries: Option<Entries>,
}

struct Local<'e> {
    name: Arc<str>,
    /// The cost of reading it.
    cost: u64,
    place: Place<'e>,
    size: Option<Size>,
    entries: Option<Entries>,
}

pub(crate) fn estimate(root: &Expr, checked: &Checked, env: &Environment) -> u64 {
    let mut estimator = Estimator {
        checked,
        env,
        // Upstream's estimator roots every path at the rule's `self`.
        root: env.root.as_deref().and_then(|name| env.variable(name)),
        locals: Vec::new(),
    };
    estimator.expr(root).cost
}

struct Estimator<'e> {
    checked: &'e Checked,
    env: &'e Environment,
    root: Option<&'e Schema>,
    locals: Vec<Local<'e>>,
}

impl<'e> Estimator<'e> {
    fn ty(&self, e: &Expr) -> &'e Type {
        &self.checked.types[e.id]
    }

    fn step(&self, from: Place<'e>, step: impl FnOnce(&'e Schema) -> Option<&'e Schema>) -> Place<'e> {
        Place::At(match from {
            Place::Nowhere => self.root,
            Place::At(schema) => schema.and_then(step),
        })
    }

    /// The size of a value: derived from the expression, or else the largest that its schema allows.
    fn size(&self, known: &Estimated<'e>, ty: &Type) -> Option<Size> {
        known
            .size
            .or_else(|| size_at(known.place))
            .or_else(|| Size::of_type(ty))
    }

    fn expr(&mut self, e: &Expr) -> Estimated<'e> {
        torana_apimachinery::interrupt::checkpoint();
        let known = match &e.kind {
            ExprKind::Literal(literal) => Estimated::literal(literal),
            ExprKind::Ident(_) => self.identifier(e),
            // A qualified name is one step; `has` of it costs one and has no size.
            ExprKind::Select(select) if !matches!(self.checked.references[e.id], Reference::None) => {
                match select.test {
                    true => Estimated::new(1),
                    false => self.identifier(e),
                }
            }
            ExprKind::Select(select) => {
                let operand = self.expr(&select.operand);
                // cel-go charges a selection only where the operand is a map or object.
                let charged = matches!(self.ty(&select.operand), Type::Map(_) | Type::Object(_));
                if select.test {
                    return Estimated::new(operand.cost);
                }
                let place = self.step(operand.place, |schema| schema.member(&select.field));
                Estimated {
                    place,
                    ..Estimated::new(operand.cost.saturating_add(charged.into()))
                }
            }
            ExprKind::List(elements) => {
                // Upstream's `listCreateBaseCost`.
                let (mut cost, mut values) = (10, Size::none(elements.is_empty()));
                for element in elements {
                    let known = self.expr(&element.value);
                    cost = known.cost.saturating_add(cost);
                    let size = self.size(&known, self.ty(&element.value));
                    values = values.union(size.unwrap_or(Size::UNKNOWN));
                }
                Estimated {
                    size: Some(Size::exactly(elements.len() as u64)),
                    entries: Some(Entries {
                        list: true,
                        key: Size::exactly(1),
                        value: values,
                    }),
                    ..Estimated::new(cost)
                }
            }
            ExprKind::Map(entries) => {
                // Upstream's `mapCreateBaseCost`.
                let mut cost = 30;
                let (mut keys, mut values) = (Size::none(entries.is_empty()), Size::none(entries.is_empty()));
                for entry in entries {
                    for (e, sizes) in [(&entry.key, &mut keys), (&entry.value, &mut values)] {
                        let known = self.expr(e);
                        cost = known.cost.saturating_add(cost);
                        *sizes = sizes.union(self.size(&known, self.ty(e)).unwrap_or(Size::UNKNOWN));
                    }
                }
                Estimated {
                    size: Some(Size::exactly(entries.len() as u64)),
                    entries: Some(Entries {
                        list: false,
                        key: keys,
                        value: values,
                    }),
                    ..Estimated::new(cost)
                }
            }
            ExprKind::Struct(of) => {
                let costs = of.fields.iter().map(|f| self.expr(&f.value).cost);
                // Upstream's `structCreateBaseCost`.
                Estimated::new(costs.fold(40, u64::saturating_add))
            }
            ExprKind::Fold(fold) => self.fold(fold),
            ExprKind::Call(call) => self.call(e, call),
        };
        // cel-go keeps the size it finds with the node, where it wins over the place.
        Estimated {
            size: known.size.or_else(|| size_at(known.place)),
            ..known
        }
    }

    fn identifier(&mut self, e: &Expr) -> Estimated<'e> {
        if let ExprKind::Ident(name) = &e.kind
            && let Some(local) = self.locals.iter().rev().find(|l| l.name == *name)
        {
            // A loop variable takes the size of its place first; for the result of a computation there is only the
            // recorded one.
            let size = size_at(local.place)
                .or_else(|| Size::of_type(self.ty(e)))
                .or(local.size);
            return Estimated {
                cost: local.cost,
                place: local.place,
                size,
                entries: local.entries.clone(),
            };
        }
        let schema = match &self.checked.references[e.id] {
            Reference::Variable(i) => self.env.variable(&self.checked.variables[*i]),
            // Upstream looks up every name as if it were the first variable.
            _ => self.root,
        };
        Estimated {
            place: Place::At(schema),
            ..Estimated::new(1)
        }
    }

    fn fold(&mut self, fold: &Fold) -> Estimated<'e> {
        let range = self.expr(&fold.range);
        let init = self.expr(&fold.init);
        // The optional macros contain their target twice in cel-go, so its cost is that of both reads and not of the
        // fold.
        let twice = &*fold.accumulator == TARGET;
        let sum = match twice {
            true => 0,
            false => range.cost.saturating_add(init.cost),
        };
        let depth = self.locals.len();
        self.locals.push(Local {
            name: fold.accumulator.clone(),
            cost: if twice { init.cost } else { 1 },
            place: init.place,
            size: self.size(&init, self.ty(&fold.init)),
            entries: init.entries.clone(),
        });
        // `cel.bind` is a loop over nothing: neither condition nor step are ever evaluated.
        if is_bind(fold) {
            let result = self.expr(&fold.result);
            self.locals.truncate(depth);
            return Estimated {
                cost: sum.saturating_add(result.cost),
                size: self.size(&result, self.ty(&fold.result)),
                entries: result.entries,
                place: Place::Nowhere,
            };
        }
        let list = match &range.entries {
            Some(entries) => entries.list,
            None => matches!(self.ty(&fold.range), Type::List(_)),
        };
        let keys = (
            self.step(range.place, Schema::key),
            // Only elements of literals have sizes without a place.
            range.entries.as_ref().map(|e| e.key),
        );
        let values = (
            self.step(range.place, Schema::item),
            range.entries.as_ref().map(|e| e.value),
        );
        let mut push = |name: &Arc<str>, (place, size): (Place<'e>, Option<Size>)| {
            self.locals.push(Local {
                name: name.clone(),
                cost: 1,
                place,
                size,
                entries: None,
            });
        };
        match &fold.var2 {
            Some(var2) => {
                push(&fold.var, keys);
                push(var2, values);
            }
            None => push(&fold.var, if list { values } else { keys }),
        }
        let condition = self.expr(&fold.condition);
        let step = self.expr(&fold.step);
        // The loop variables end here; the result only sees the accumulator.
        self.locals.truncate(depth + 1);
        let result = self.expr(&fold.result);
        self.locals.truncate(depth);
        // Without any bound, the number of rounds is the largest, and the estimate exceeds every limit.
        let rounds = self.size(&range, self.ty(&fold.range)).unwrap_or(Size::UNKNOWN);
        let round = condition.cost.saturating_add(step.cost);
        let cost = sum.saturating_add(result.cost);
        let (size, entries) = match &fold.init.kind {
            // A loop that builds a list or map has at most as many elements as rounds.
            ExprKind::List(_) | ExprKind::Map(_) => (Some(rounds), step.entries),
            _ => (self.size(&init, self.ty(&fold.init)), None),
        };
        Estimated {
            cost: cost.saturating_add(rounds.max.saturating_mul(round)),
            place: Place::Nowhere,
            size,
            entries,
        }
    }
}

fn size_at(place: Place<'_>) -> Option<Size> {
    match place {
        Place::At(Some(schema)) if schema.max_size < u64::MAX => Some(Size {
            min: 0,
            max: schema.max_size,
        }),
        _ => None,
    }
}

impl Estimated<'_> {
    fn new(cost: u64) -> Self {
        Self {
            cost,
            place: Place::Nowhere,
            size: None,
            entries: None,
        }
    }

    fn literal(literal: &Literal) -> Self {
        let size = match literal {
            Literal::String(s) => s.chars().count() as u64,
            Literal::Bytes(b) => b.len() as u64,
            _ => 1,
        };
        Self {
            size: Some(Size::exactly(size)),
            ..Self::new(0)
        }
    }
}
