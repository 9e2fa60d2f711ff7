//! The static estimate of calls: the cost of each function from the sizes that its arguments can have, and the size
//! of its result. The numbers follow cel-go's and Kubernetes' estimators; what a call costs when it runs is in `cost`.

use super::size::{Entries, Size, scaled};
use super::{Estimated, Estimator, Place};
use crate::ast::{Call, Expr, ExprKind, Literal, op};
use crate::checker::Reference;
use crate::library::{Callee, Overload};
use crate::types::{Schema, Type};

const TRAVERSAL: f64 = 0.1;
const PATTERN: f64 = 0.25;
/// Calls that allocate a list.
const ALLOCATION: u64 = 11;

/// The cost of a call beyond that of its arguments, and the size of its result.
type Charge = (u64, Option<Size>);

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

    fn overload(&self, callee: &Callee, overload: &Overload, args: &[Arg<'e, '_>]) -> Charge {
        let name = callee.function.name;
        // Each name is in one of the tables; a function that is in none takes one step.
        self.operator(name, overload, args)
            .or_else(|| self.on_text(name, overload, args))
            .or_else(|| self.on_collections(name, overload, args))
            .or_else(|| of_kubernetes(name, overload, args))
            .unwrap_or((1, None))
    }

    fn operator(&self, name: &str, overload: &Overload, args: &[Arg<'e, '_>]) -> Option<Charge> {
        let both_text = || is_text(overload, 0) && is_text(overload, 1);
        let shorter = || scaled(size(args, 0).max.min(size(args, 1).max), TRAVERSAL);
        Some(match name {
            "_==_" if args[0].ty == args[1].ty && self.fixed(args[0].ty) => (1, None),
            "_==_" if args[0].ty == args[1].ty && *args[0].ty == Type::Opaque("kubernetes.NamedFormat") => (7, None),
            "_==_" | "_!=_" => (shorter(), None),
            "_<_" | "_<=_" | "_>_" | "_>=_" if both_text() => (shorter(), None),
            "_+_" if is_text(overload, 0) => {
                let total = size(args, 0).plus(size(args, 1));
                (scaled(total.max, TRAVERSAL), Some(total))
            }
            "_+_" if matches!(overload.params[0], Type::List(_)) => (1, Some(size(args, 0).plus(size(args, 1)))),
            "@in" if matches!(overload.params[1], Type::List(_)) => (size(args, 1).max, None),
            _ => return None,
        })
    }

    /// Functions of strings and bytes, and those that make strings.
    fn on_text(&self, name: &str, overload: &Overload, args: &[Arg<'e, '_>]) -> Option<Charge> {
        let (of, whole) = (size(args, 0), traversal(args, 0));
        Some(match name {
            "url" | "jsonpatch.escapeKey" | "lowerAscii" | "upperAscii" | "substring" | "trim" => (whole, Some(of)),
            "replace" => (
                scaled(of.max, 2.0 * TRAVERSAL),
                Some(replaced(of, size(args, 1), size(args, 2))),
            ),
            "split" => {
                let max = match args.get(2).map(|a| &a.expr.kind) {
                    // A negative limit wraps to a huge one, as the conversion in Go does.
                    Some(ExprKind::Literal(Literal::Int(n))) => *n as u64,
                    _ => of.max,
                };
                (scaled(of.max, 2.0 * TRAVERSAL), Some(Size { min: 0, max }))
            }
            "join" => {
                let element = self.elements(&args[0]).map_or(Size::exactly(0), |(_, of)| of);
                let mut total = of.times(element);
                if args.len() > 1 {
                    let separators = Size {
                        min: of.min.saturating_sub(1),
                        max: of.max.saturating_sub(1),
                    };
                    total = total.plus(size(args, 1).times(separators));
                }
                (scaled(total.max, TRAVERSAL), Some(total))
            }
            "find" | "findAll" => (pattern(args), Some(Size { min: 0, ..of })),
            "matches" if overload.member => (pattern(args), None),
            "contains" => (whole.saturating_mul(traversal(args, 1)), None),
            "startsWith" | "endsWith" => (traversal(args, 1), None),
            "format" => (whole, None),
            "bytes" if overload.params[0] == Type::String => {
                let max = of.max.saturating_mul(4);
                // A code point takes at most four bytes.
                (whole, Some(Size { max, ..of }))
            }
            "string" if overload.params[0] == Type::Bytes => {
                let min = of.min / 4;
                (whole, Some(Size { min, ..of }))
            }
            "strings.quote" => {
                let quoted = Size {
                    // Every character may need an escape, and the quotes are added.
                    min: of.min.saturating_add(2),
                    max: of.max.saturating_mul(2).saturating_add(2),
                };
                (whole, Some(quoted))
            }
            _ => return None,
        })
    }

    /// Functions of lists and maps.
    fn on_collections(&self, name: &str, overload: &Overload, args: &[Arg<'e, '_>]) -> Option<Charge> {
        let of = size(args, 0);
        let product = || of.max.saturating_mul(size(args, 1).max);
        let literal = |i: usize| literal_int(args.get(i).map(|a| a.expr));
        Some(match name {
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => match self.elements(&args[0]) {
                Some((Type::String | Type::Bytes, element)) => {
                    let each = scaled(element.max, TRAVERSAL).saturating_add(1);
                    (of.max.saturating_mul(each), None)
                }
                Some(_) => (of.max, None),
                // `indexOf` and `lastIndexOf` of a string.
                None => (traversal(args, 0), None),
            },
            "sets.contains" | "sets.intersects" => (product().saturating_add(1), None),
            // Both directions are checked.
            "sets.equivalent" => (scaled(product(), 2.0).saturating_add(1), None),
            "slice" => {
                let (start, end) = (literal(1).unwrap_or(0), literal(2).unwrap_or(of.max));
                // Wraps like Go's unsigned subtraction: a start behind the end gives a huge estimate instead of none.
                allocated(1.0, Size::exactly(end.wrapping_sub(start)))
            }
            "lists.range" => allocated(1.0, Size::exactly(literal(0).unwrap_or(u64::MAX))),
            "reverse" => allocated(1.0, of),
            "flatten" => {
                let depth = match args.len() > 1 {
                    true => literal(1).unwrap_or(u64::MAX),
                    false => 1,
                };
                allocated(depth as f64, of)
            }
            "distinct" => allocated(2.0, of.times(of)),
            "sort" | "@sortByAssociatedKeys" => {
                let keys = size(args, usize::from(args.len() > 1));
                let text = match overload.params.last() {
                    Some(Type::List(of)) => matches!(**of, Type::String | Type::Bytes),
                    _ => false,
                };
                // Comparing strings costs a tenth of their size in addition.
                allocated(if text { 2.1 } else { 2.0 }, keys.times(keys))
            }
            _ => return None,
        })
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

/// Functions of the libraries of Kubernetes: authorization, selectors, addresses, quantities, versions, formats.
fn of_kubernetes(name: &str, overload: &Overload, args: &[Arg<'_, '_>]) -> Option<Charge> {
    let cost = match name {
        // The limit of an expression has room for two checks, each of which may be a request to a webhook.
        "check" => 350_000,
        "fieldSelector" | "labelSelector" => {
            let requirements = scaled(scaled(size(args, 1).max, 0.5), 50.0);
            10u64.saturating_add(traversal(args, 1)).saturating_add(requirements)
        }
        "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => traversal(args, 0),
        "ip" if is_text(overload, 0) => traversal(args, 0),
        "ip.isCanonical" => scaled(size(args, 0).max, 2.0 * TRAVERSAL),
        // A text is parsed first.
        "containsIP" if is_text(overload, 1) => 4 + traversal(args, 1),
        "containsIP" => 4,
        "containsCIDR" if is_text(overload, 1) => 4 + 2 + 1 + traversal(args, 1),
        "containsCIDR" => 4 + 2 + 1,
        "validate" => scaled(traversal(args, 1), 128.0 * PATTERN),
        _ => return None,
    };
    Some((cost, None))
}

fn size(args: &[Arg<'_, '_>], i: usize) -> Size {
    args.get(i).map_or(Size::UNKNOWN, |a| a.size)
}

/// The cost of reading an argument once.
fn traversal(args: &[Arg<'_, '_>], i: usize) -> u64 {
    scaled(size(args, i).max, TRAVERSAL)
}

fn is_text(overload: &Overload, i: usize) -> bool {
    matches!(overload.params.get(i), Some(Type::String | Type::Bytes))
}

/// The cost of matching the first argument against the pattern in the second.
fn pattern(args: &[Arg<'_, '_>]) -> u64 {
    let text = scaled(args[0].size.max.saturating_add(1), TRAVERSAL);
    text.saturating_mul(scaled(args[1].size.max, PATTERN))
}

fn allocated(factor: f64, size: Size) -> Charge {
    // The size itself is not scaled: the factor counts traversals, not elements.
    (scaled(size.max, factor).saturating_add(ALLOCATION), Some(size))
}

fn literal_int(e: Option<&Expr>) -> Option<u64> {
    match e.map(|e| &e.kind) {
        Some(ExprKind::Literal(Literal::Int(n))) => Some(u64::try_from(*n).unwrap_or(0)),
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
