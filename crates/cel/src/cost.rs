//! The cost of calls at run time: cel-go's numbers for the language, Kubernetes' for its libraries.

use crate::library::Overload;
use crate::types::Type;
use crate::value::Val;
use crate::value::net::Net;

/// The cost of a call: part of it is known before the call, and bounds its work; the rest depends on the
/// result.
#[derive(Clone, Copy)]
pub(crate) struct CallCost {
    before: fn(&[Val<'_>]) -> u64,
    after: Option<fn(&Val<'_>) -> u64>,
}

/// The cost of creating a list.
const LIST: u64 = 10;
/// An authorization check costs so much that an expression can have two.
const CHECK: u64 = 350_000;

impl CallCost {
    pub(crate) fn before(&self, args: &[Val<'_>]) -> u64 {
        (self.before)(args)
    }

    pub(crate) fn after(&self, result: &Val<'_>) -> u64 {
        self.after.map_or(0, |cost| cost(result))
    }
}

/// Traversing a string costs a tenth of its size.
pub(crate) fn tenth(size: u64) -> u64 {
    size.div_ceil(10)
}

/// Matching costs a quarter of the pattern's size for each unit of traversal.
pub(crate) fn quarter(size: u64) -> u64 {
    size.div_ceil(4)
}

/// How much traversing a value takes: the size of strings (in code points), bytes, lists and maps, else 1.
fn size(v: &Val<'_>) -> u64 {
    match v {
        // The cost counts code points because cel-go's strings are measured in them.
        Val::String(s) => s.chars().count() as u64,
        Val::Bytes(b) => b.len() as u64,
        Val::List(l) => l.len() as u64,
        Val::Map(m) => m.len() as u64,
        // The size of a declared object is its number of fields present, like a map's in cel-go.
        Val::Object(m, _) => m.len() as u64,
        Val::Optional(Some(v)) => size(v),
        Val::Net(Net::Ip(ip)) => {
            if ip.is_ipv4() {
                4
            } else {
                16
            }
        }
        Val::Net(Net::Cidr(_, bits)) => u64::from(*bits).div_ceil(8),
        _ => 1,
    }
}

fn at(args: &[Val<'_>], i: usize) -> u64 {
    args.get(i).map_or(1, size)
}

/// The cost of traversing a value with all that is in it.
fn traversal(v: &Val<'_>) -> u64 {
    let mut cost = 0;
    traverse(v, &mut cost);
    cost
}

fn traverse(v: &Val<'_>, cost: &mut u64) {
    // No evaluation may cost more. Traversing a value whose parts are shared can take far more steps than its
    // size in memory suggests.
    const ENOUGH: u64 = 10_000_000;
    torana_apimachinery::interrupt::checkpoint();
    if *cost > ENOUGH {
        return;
    }
    match v {
        // Rounded down, unlike `tenth`: Kubernetes divides integers here.
        Val::String(s) => *cost += s.len() as u64 / 10,
        Val::Bytes(b) => *cost += b.len() as u64 / 10,
        // Elements that are not of their schema's type are skipped; the call itself reports them.
        Val::List(list) => list.iter().flatten().for_each(|v| traverse(&v, cost)),
        Val::Map(map) => {
            // An error in the map costs nothing here, since the call fails on it before it does any work.
            for (k, v) in map.entries().unwrap_or_default() {
                traverse(&k, cost);
                traverse(&v, cost);
            }
        }
        _ => *cost += 1,
    }
}

fn comparison(a: &[Val<'_>]) -> u64 {
    // The shorter side bounds the comparison.
    tenth(at(a, 0).min(at(a, 1)))
}

fn pattern(a: &[Val<'_>]) -> u64 {
    // One more than the text: matching an empty text still runs the pattern.
    tenth(1 + at(a, 0)).saturating_mul(quarter(at(a, 1)))
}

fn network(a: &[Val<'_>]) -> u64 {
    let parsed = if matches!(a.get(1), Some(Val::String(_))) {
        tenth(at(a, 1))
    } else {
        0
    };
    tenth(2 * at(a, 0)) + parsed
}

/// A sort, or the search for duplicates, compares each element with each other.
fn self_comparison(list: Option<&Val<'_>>) -> u64 {
    // `null` and errors in place of a list fail in the call.
    let Some(Val::List(list)) = list else { return 1 };
    let n = list.len() as u64;
    let product = n.saturating_mul(n).saturating_mul(2);
    // The type of the first element stands for all, as upstream samples it.
    let text = match list.get(0) {
        Some(Ok(Val::String(_) | Val::Bytes(_))) => n.saturating_mul(n) / 10,
        _ => 0,
    };
    product.saturating_add(text).saturating_add(1 + LIST)
}

fn allocation(result: &Val<'_>) -> u64 {
    size(result) + 1 + LIST
}

/// The cost of a call. Without a single overload, of the language's own functions only equality depends on
/// sizes.
pub(crate) fn of_call(function: &str, overload: Option<&Overload>) -> CallCost {
    let first = overload.and_then(|o| o.params.first());
    let text = matches!(first, Some(Type::String | Type::Bytes));
    let mut after: Option<fn(&Val<'_>) -> u64> = None;
    let before: fn(&[Val<'_>]) -> u64 = match function {
        // Types of Kubernetes' libraries compare in one step at run time.
        "_==_" => |a| match a.first() {
            Some(
                Val::Quantity(..) | Val::Net(_) | Val::Url(_) | Val::Semver(_) | Val::Format(_) | Val::Authority(_),
            ) => 1,
            _ => comparison(a),
        },
        "_!=_" => comparison,
        "_<_" | "_<=_" | "_>_" | "_>=_" if text => comparison,
        "_+_" if text => |a| tenth(at(a, 0) + at(a, 1)),
        // Searching a list compares with each element; a map is one lookup.
        "@in" if matches!(overload.map(|o| &o.params[1]), Some(Type::List(_))) => |a| at(a, 1),
        "matches" if overload.is_some_and(|o| o.member) => pattern,
        "find" | "findAll" => pattern,
        "contains" => |a| tenth(at(a, 0)) * tenth(at(a, 1)),
        "startsWith" | "endsWith" | "strings.quote" | "format" => |a| tenth(at(a, 0)),
        "bytes" if matches!(first, Some(Type::String)) => |a| tenth(at(a, 0)),
        "string" if matches!(first, Some(Type::Bytes)) => |a| tenth(at(a, 0)),
        "replace" | "split" | "ip.isCanonical" => |a| at(a, 0).div_ceil(5),
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "quantity"
        | "isQuantity"
        | "isIP"
        | "cidr"
        | "isCIDR"
        | "semver"
        | "isSemver" => |a| tenth(at(a, 0)),
        "ip" if matches!(first, Some(Type::String)) => |a| tenth(at(a, 0)),
        "containsIP" => network,
        "containsCIDR" => |a| network(a) + tenth(at(a, 0)) + 1,
        "validate" => |a| match a {
            // The cost of the format's regular expression, whether or not it is checked by one here.
            [Val::Format(format), s] => tenth(1 + size(s)) * quarter(format.pattern_size),
            _ => 1,
        },
        "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" => |a| a.first().map_or(0, traversal),
        // The overload depends on the type of the elements, which is not known here.
        "sort" | "@sortByAssociatedKeys" if overload.is_none() => |_| 1,
        "distinct" | "sort" => |a| self_comparison(a.first()),
        "@sortByAssociatedKeys" => |a| self_comparison(a.get(1)),
        "slice" | "reverse" => {
            // The result has its size only afterwards, and the work is proportional to it.
            after = Some(allocation);
            |_| 0
        }
        "lists.range" => |a| match a {
            [Val::Int(n)] => u64::try_from(*n).unwrap_or(0) + 1 + LIST,
            _ => 1,
        },
        "flatten" => |a| {
            let depth = match a.get(1) {
                Some(Val::Int(n)) => u64::try_from(*n).unwrap_or(0),
                // A negative depth is an error of the call, so its cost does not matter.
                _ => 1,
            };
            at(a, 0).saturating_mul(depth).saturating_add(1 + LIST)
        },
        "sets.contains" | "sets.intersects" => |a| at(a, 0).saturating_mul(at(a, 1)) + 1,
        "sets.equivalent" => |a| at(a, 0).saturating_mul(at(a, 1)).saturating_mul(2) + 1,
        "join" => {
            after = Some(|v| size(v).div_ceil(5));
            |_| 0
        }
        "check" => |_| CHECK,
        "fieldSelector" | "labelSelector" => |a| {
            // Parsing, and a list and a struct for each requirement, of which the shortest has two
            // characters.
            LIST + tenth(at(a, 1)) + at(a, 1).div_ceil(2) * (LIST + 40)
        },
        _ => |_| 1,
    };
    CallCost { before, after }
}
