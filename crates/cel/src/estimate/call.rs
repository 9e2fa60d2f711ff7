//! The estimate of calls.

use super::size::{Entries, Size, scaled};
use super::{Estimated, Estimator, Place};
use crate::ast::{Call, Expr, Kind, Literal, op};
use crate::checker::Reference;
use crate::library::{Callee, Overload};
use crate::types::{Schema, Type};

const TRAVERSAL: f64 = 0.1;
const PATTERN: f64 = 0.25;
/// Calls that allocate a list.
const ALLOCATION: u64 = 11;

/// An argument, with its type.
struct Arg<'e, 'x> {
    expr: &'x Expr,
    ty: &'e Type,
    size: Size,
    known: Estimated<'e>,
}

impl<'e> Estimator<'e> {
    pub(super) fn call(&mut self, e: &Expr, call: &Call) -> Estimated<'e> {
        if &*call.function == op::OPT_SELECT {
            let operand = self.expr(&call.args[0]);
            return Estimated::new(operand.cost.saturating_add(1));
        }
        let Reference::Function(callee) = self.checked.references[e.id].clone() else {
            return Estimated::new(0);
        };
        let target = call.target.iter().filter(|_| callee.member);
        let mut args = Vec::with_capacity(call.args.len() + 1);
        // Costs are charged for all arguments, since calls are strict.
        for expr in target.chain(&call.args) {
            let known = self.expr(expr);
            let ty = self.ty(expr);
            let size = self.size(&known, ty).unwrap_or(Size::UNKNOWN);
            args.push(Arg { expr, ty, size, known });
        }
        let sum = args.iter().fold(0u64, |n, a| n.saturating_add(a.known.cost));
        match callee.function.name {
            "dyn" => {
                let of = args.swap_remove(0);
                return Estimated {
                    cost: sum.saturating_add(1),
                    size: Some(of.size),
                    entries: of.known.entries,
                    place: Place::Nowhere,
                };
            }
            op::CONDITIONAL => {
                // Only one branch runs: the estimate takes the dearer one.
                let worse = args[1].known.cost.max(args[2].known.cost);
                return Estimated {
                    cost: args[0].known.cost.saturating_add(worse),
                    size: Some(args[1].size.union(args[2].size)),
                    entries: join(&args[1], &args[2]),
                    place: Place::Nowhere,
                };
            }
            // Short-circuiting is ignored: the estimate is an upper bound.
            op::AND | op::OR => return Estimated::new(sum),
            _ => {}
        }
        let (mut cost, mut out) = (0, Estimated::new(0));
        // The overload may be unknown until run time, so the dearest counts.
        for overload in callee.allowed() {
            let (own, size) = self.overload(&callee, overload, &args);
            cost = cost.max(own);
            out.size = match (out.size, size) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
            if callee.function.name == op::INDEX && matches!(overload.params[0], Type::List(_) | Type::Map(_)) {
                out.size = args[0].known.entries.as_ref().map(|e| e.value);
                out.place = self.step(args[0].known.place, Schema::item);
            }
            if callee.function.name == op::ADD {
                out.entries = join(&args[0], &args[1]);
            }
        }
        out.cost = sum.saturating_add(cost);
        out
    }

    /// The cost of a call of this overload beyond that of its arguments, and the size of its result.
    fn overload(&self, callee: &Callee, overload: &Overload, args: &[Arg<'e, '_>]) -> (u64, Option<Size>) {
        let size = |i: usize| args.get(i).map_or(Size::UNKNOWN, |a| a.size);
        let text = |i: usize| matches!(overload.params.get(i), Some(Type::String | Type::Bytes));
        let traversal = |i: usize| scaled(size(i).max, TRAVERSAL);
        match callee.function.name {
            "check" => (350_000, None),
            "fieldSelector" | "labelSelector" => {
                let requirements = scaled(scaled(size(1).max, 0.5), 50.0);
                (10u64.saturating_add(traversal(1)).saturating_add(requirements), None)
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => match self.elements(&args[0]) {
                Some((Type::String | Type::Bytes, of)) => {
                    let each = scaled(of.max, TRAVERSAL).saturating_add(1);
                    (size(0).max.saturating_mul(each), None)
                }
                Some(_) => (size(0).max, None),
                None => (traversal(0), None),
            },
            "url" | "jsonpatch.escapeKey" | "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                (traversal(0), Some(size(0)))
            }
            "replace" => (
                scaled(size(0).max, 2.0 * TRAVERSAL),
                Some(replaced(size(0), size(1), size(2))),
            ),
            "split" => {
                let max = match args.get(2).map(|a| &a.expr.kind) {
                    // A negative limit wraps to a huge one, as the conversion in Go does.
                    Some(Kind::Literal(Literal::Int(n))) => *n as u64,
                    _ => size(0).max,
                };
                (scaled(size(0).max, 2.0 * TRAVERSAL), Some(Size { min: 0, max }))
            }
            "join" => {
                let of = self.elements(&args[0]).map_or(Size::exactly(0), |(_, of)| of);
                let mut total = size(0).times(of);
                if args.len() > 1 {
                    let separators = Size {
                        min: size(0).min.saturating_sub(1),
                        max: size(0).max.saturating_sub(1),
                    };
                    total = total.plus(size(1).times(separators));
                }
                (scaled(total.max, TRAVERSAL), Some(total))
            }
            "find" | "findAll" => (self.pattern(args), Some(Size { min: 0, ..size(0) })),
            "matches" if overload.member => (self.pattern(args), None),
            "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => (traversal(0), None),
            "ip" if text(0) => (traversal(0), None),
            "ip.isCanonical" => (scaled(size(0).max, 2.0 * TRAVERSAL), None),
            "containsIP" => (4 + if text(1) { traversal(1) } else { 0 }, None),
            "containsCIDR" => (4 + 2 + 1 + if text(1) { traversal(1) } else { 0 }, None),
            "validate" => (scaled(traversal(1), 128.0 * PATTERN), None),
            "_==_" if args[0].ty == args[1].ty && self.fixed(args[0].ty) => (1, None),
            "_==_" if args[0].ty == args[1].ty && *args[0].ty == Type::Opaque("kubernetes.NamedFormat") => (7, None),
            "_==_" | "_!=_" => (scaled(size(0).max.min(size(1).max), TRAVERSAL), None),
            "_<_" | "_<=_" | "_>_" | "_>=_" if text(0) && text(1) => {
                (scaled(size(0).max.min(size(1).max), TRAVERSAL), None)
            }
            "_+_" if text(0) => {
                let total = size(0).plus(size(1));
                (scaled(total.max, TRAVERSAL), Some(total))
            }
            "_+_" if matches!(overload.params[0], Type::List(_)) => (1, Some(size(0).plus(size(1)))),
            "@in" if matches!(overload.params[1], Type::List(_)) => (size(1).max, None),
            "contains" => (traversal(0).saturating_mul(traversal(1)), None),
            "startsWith" | "endsWith" => (traversal(1), None),
            "format" => (traversal(0), None),
            "bytes" if overload.params[0] == Type::String => {
                let max = size(0).max.saturating_mul(4);
                // A code point takes at most four bytes.
                (traversal(0), Some(Size { max, ..size(0) }))
            }
            "string" if overload.params[0] == Type::Bytes => {
                let min = size(0).min / 4;
                (traversal(0), Some(Size { min, ..size(0) }))
            }
            "strings.quote" => {
                let (min, max) = (size(0).min, size(0).max);
                let quoted = Size {
                    // Every character may need an escape, and the quotes are added.
                    min: min.saturating_add(2),
                    max: max.saturating_mul(2).saturating_add(2),
                };
                (traversal(0), Some(quoted))
            }
            "sets.contains" | "sets.intersects" => (size(0).max.saturating_mul(size(1).max).saturating_add(1), None),
            "sets.equivalent" => {
                let product = scaled(size(0).max.saturating_mul(size(1).max), 2.0);
                (product.saturating_add(1), None)
            }
            "slice" => {
                let int = |i: usize, default: u64| literal_int(args.get(i).map(|a| a.expr)).unwrap_or(default);
                // Wraps like Go's unsigned subtraction: a start behind the end gives a huge estimate instead of none.
                allocated(1.0, Size::exactly(int(2, size(0).max).wrapping_sub(int(1, 0))))
            }
            "lists.range" => allocated(
                1.0,
                Size::exactly(literal_int(args.first().map(|a| a.expr)).unwrap_or(u64::MAX)),
            ),
            "reverse" => allocated(1.0, size(0)),
            "flatten" => {
                let depth = if args.len() > 1 {
                    literal_int(Some(args[1].expr)).unwrap_or(u64::MAX)
                } else {
                    1
                };
                allocated(depth as f64, size(0))
            }
            "distinct" => allocated(2.0, size(0).times(size(0))),
            "sort" | "@sortByAssociatedKeys" => {
                let keys = size(usize::from(args.len() > 1));
                let text = match overload.params.last() {
                    Some(Type::List(of)) => matches!(**of, Type::String | Type::Bytes),
                    _ => false,
                };
                // Comparing strings costs a tenth of their size in addition.
                allocated(if text { 2.1 } else { 2.0 }, keys.times(keys))
            }
            _ => (1, None),
        }
    }

    fn pattern(&self, args: &[Arg<'e, '_>]) -> u64 {
        let text = scaled(args[0].size.max.saturating_add(1), TRAVERSAL);
        text.saturating_mul(scaled(args[1].size.max, PATTERN))
    }

    /// The type and size of the elements of a list; `None` for other values.
    fn elements(&self, arg: &Arg<'e, '_>) -> Option<(&'e Type, Size)> {
        let of = match arg.ty {
            Type::List(of) => of.as_ref(),
            Type::Map(of) => &of.0,
            _ => return None,
        };
        let place = match arg.known.place {
            Place::Nowhere => return Some((of, Size::UNKNOWN)),
            place => self.step(place, Schema::item),
        };
        Some((of, super::size_at(place).unwrap_or(Size::UNKNOWN)))
    }

    /// True for types of Kubernetes whose values are compared in one step.
    fn fixed(&self, ty: &Type) -> bool {
        matches!(ty, Type::Opaque(name) if *name != "kubernetes.NamedFormat" && *name != "kubernetes.URL")
    }
}

fn allocated(factor: f64, size: Size) -> (u64, Option<Size>) {
    // The size itself is not scaled: the factor counts traversals, not elements.
    (scaled(size.max, factor).saturating_add(ALLOCATION), Some(size))
}

fn literal_int(e: Option<&Expr>) -> Option<u64> {
    match e.map(|e| &e.kind) {
        Some(Kind::Literal(Literal::Int(n))) => Some(u64::try_from(*n).unwrap_or(0)),
        _ => None,
    }
}

fn join(a: &Arg<'_, '_>, b: &Arg<'_, '_>) -> Option<Entries> {
    Some(a.known.entries.as_ref()?.union(b.known.entries.as_ref()?))
}

/// The size of a string in which each occurrence of something is replaced.
fn replaced(of: Size, from: Size, to: Size) -> Size {
    // A division by zero gives infinity, which the conversion saturates; the callers exclude it.
    let count = |n: u64, part: u64| (n as f64 / part as f64).ceil() as u64;
    let (most, kept_most) = if from.min == 0 {
        (of.max.saturating_add(1), of.max)
    } else if to.max <= from.min {
        // Replacements that are no longer than what they replace cannot lengthen the string.
        (0, of.max)
    } else {
        (count(of.max, from.min), 0)
    };
    let (least, kept_least) = if from.max == 0 {
        (of.min.saturating_add(1), of.min)
    } else if from.max <= to.min {
        (0, of.min)
    } else {
        (count(of.min, from.max), 0)
    };
    Size {
        min: least.saturating_mul(to.min).saturating_add(kept_least),
        max: most.saturating_mul(to.max).saturating_add(kept_most),
    }
}
