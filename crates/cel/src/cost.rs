//! What calls cost at run time: cel-go's numbers for the language, Kubernetes' for its libraries.

use crate::value::Val;

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
        Val::String(s) => s.chars().count() as u64,
        Val::Bytes(b) => b.len() as u64,
        Val::List(l) => l.len() as u64,
        Val::Map(m) => m.len() as u64,
        _ => 1,
    }
}

/// What a call costs beyond its arguments.
pub(crate) fn of_call(function: &str, args: &[Val<'_>]) -> u64 {
    let at = |i: usize| args.get(i).map_or(1, size);
    let text = matches!(args.first(), Some(Val::String(_) | Val::Bytes(_)));
    match function {
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => tenth(at(0).min(at(1))),
        "_+_" if text => tenth(at(0) + at(1)),
        "@in" => match args.get(1) {
            Some(Val::List(_)) => at(1),
            _ => 1,
        },
        "matches" | "find" | "findAll" => tenth(1 + at(0)) * quarter(at(1)),
        "contains" => tenth(at(0)) * tenth(at(1)),
        "startsWith" | "endsWith" | "strings.quote" | "format" => tenth(at(0)),
        "bytes" | "string" if text => tenth(at(0)),
        "replace" | "split" => (at(0)).div_ceil(5),
        "url" | "isURL" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "charAt" | "quantity" | "isQuantity"
        | "ip" | "isIP" | "cidr" | "isCIDR" | "semver" | "isSemver" => tenth(at(0)),
        "ip.isCanonical" => at(0).div_ceil(5),
        "isSorted" | "sum" | "min" | "max" | "distinct" | "reverse" | "flatten" | "sort" => at(0).max(1),
        "@sortByAssociatedKeys" => at(0).max(1),
        "indexOf" | "lastIndexOf" if text => tenth(at(0)) * tenth(at(1)).max(1),
        "indexOf" | "lastIndexOf" => at(0).max(1),
        "sets.contains" | "sets.intersects" => (at(0).saturating_mul(at(1))).max(1),
        "sets.equivalent" => (at(0).saturating_mul(at(1)).saturating_mul(2)).max(1),
        _ => 1,
    }
}

/// What a call costs by its result.
pub(crate) fn of_result(function: &str, result: &Val<'_>) -> u64 {
    match function {
        "join" | "lists.range" => tenth(size(result)),
        _ => 0,
    }
}
