//! Functions on lists: those of Kubernetes' library (`isSorted`, `sum`, `min`, `indexOf` …) and of cel-go's
//! extension (`distinct`, `flatten`, `sort` …).

use super::{Body::Strict, Declaration};
use crate::library::{Run, standard, strings};
use crate::types::Type;
use crate::value::{Fail, Out, Val, error, no_overload};
use std::cmp::Ordering;

pub(super) const FUNCTIONS: &[Declaration] = &[
    ("isSorted", Strict(is_sorted), ORDERED),
    (
        "sum",
        Strict(sum),
        &[
            "list(int).() int",
            "list(uint).() uint",
            "list(double).() double",
            "list(duration).() duration",
        ],
    ),
    ("min", Strict(|a| extreme(a, "min", Ordering::Less)), EXTREMES),
    ("max", Strict(|a| extreme(a, "max", Ordering::Greater)), EXTREMES),
    (
        "indexOf",
        Strict(|a| index_of(a, false)),
        &["list(A).(A) int", "string.(string) int", "string.(string, int) int"],
    ),
    (
        "lastIndexOf",
        Strict(|a| index_of(a, true)),
        &["list(A).(A) int", "string.(string) int", "string.(string, int) int"],
    ),
    ("slice", Strict(slice), &["list(A).(int, int) list(A)"]),
    (
        "flatten",
        Strict(flatten),
        &["list(list(A)).() list(A)", "list(dyn).(int) list(dyn)"],
    ),
    ("distinct", Strict(distinct), &["list(A).() list(A)"]),
    ("reverse", Strict(reverse), &["list(A).() list(A)"]),
    ("sort", Strict(sort), SORTED),
    (
        "@sortByAssociatedKeys",
        Strict(sort_by),
        &[
            "list(A).(list(int)) list(A)",
            "list(A).(list(uint)) list(A)",
            "list(A).(list(double)) list(A)",
            "list(A).(list(bool)) list(A)",
            "list(A).(list(duration)) list(A)",
            "list(A).(list(timestamp)) list(A)",
            "list(A).(list(string)) list(A)",
            "list(A).(list(bytes)) list(A)",
        ],
    ),
    ("lists.range", Strict(range), &["(int) list(int)"]),
];

const ORDERED: &[&str] = &[
    "list(int).() bool",
    "list(uint).() bool",
    "list(double).() bool",
    "list(bool).() bool",
    "list(duration).() bool",
    "list(timestamp).() bool",
    "list(string).() bool",
    "list(bytes).() bool",
];

const EXTREMES: &[&str] = &[
    "list(int).() int",
    "list(uint).() uint",
    "list(double).() double",
    "list(bool).() bool",
    "list(duration).() duration",
    "list(timestamp).() timestamp",
    "list(string).() string",
    "list(bytes).() bytes",
];

const SORTED: &[&str] = &[
    "list(int).() list(int)",
    "list(uint).() list(uint)",
    "list(double).() list(double)",
    "list(bool).() list(bool)",
    "list(duration).() list(duration)",
    "list(timestamp).() list(timestamp)",
    "list(string).() list(string)",
    "list(bytes).() list(bytes)",
];

/// Maximum number of elements that `lists.range` creates.
const MAX_RANGE: i64 = 1_000_000;

fn items<'a>(v: &Val<'a>) -> Result<Vec<Val<'a>>, Fail> {
    match v {
        Val::List(list) => list.to_vec(),
        _ => no_overload(),
    }
}

/// True if values of this type have an order.
pub(crate) fn is_ordered(v: &Val<'_>) -> bool {
    use Val::{Bool, Bytes, Double, Duration, Int, String, Timestamp, Uint};
    matches!(
        v,
        Bool(_) | Int(_) | Uint(_) | Double(_) | String(_) | Bytes(_) | Duration(_) | Timestamp(_)
    )
}

/// The elements of a list, all of types that have an order. Elements of different types may be in it:
/// upstream ignores that they do not compare.
fn ordered_items<'a>(list: &Val<'a>) -> Result<Vec<Val<'a>>, Fail> {
    let items = items(list)?;
    match items.iter().all(is_ordered) {
        true => Ok(items),
        false => no_overload(),
    }
}

fn is_sorted<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let items = ordered_items(&args[0])?;
    // Pairs that do not compare count as sorted.
    let descends = |pair: &[Val<'a>]| pair[0].compare(&pair[1]) == Ok(Ordering::Greater);
    Ok(Val::Bool(!items.windows(2).any(descends)))
}

fn sum<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    sum_from(Val::Int(0), args)
}

/// The sum of a list of this type. The type decides the sum of an empty list.
pub(crate) fn sum_of(of: &Type) -> Run {
    match of {
        Type::Uint => |a| sum_from(Val::Uint(0), a),
        Type::Double => |a| sum_from(Val::Double(0.0), a),
        Type::Duration => |a| sum_from(Val::Duration(0), a),
        _ => sum,
    }
}

fn sum_from<'a>(zero: Val<'a>, args: &[Val<'a>]) -> Out<'a> {
    let mut items = items(&args[0])?.into_iter();
    let Some(mut total) = items.next() else {
        return Ok(zero);
    };
    // Types without a sum fail at the first element.
    if !matches!(total, Val::Int(_) | Val::Uint(_) | Val::Double(_) | Val::Duration(_)) {
        return no_overload();
    }
    for item in items {
        total = standard::add(&mut [total, item])?;
    }
    Ok(total)
}

fn extreme<'a>(args: &[Val<'a>], name: &str, wanted: Ordering) -> Out<'a> {
    let mut items = ordered_items(&args[0])?.into_iter();
    let Some(mut best) = items.next() else {
        return error(format!("{name} called on empty list"));
    };
    for item in items {
        // Elements that do not compare are ignored, as upstream does.
        if item.compare(&best) == Ok(wanted) {
            best = item;
        }
    }
    Ok(best)
}

fn index_of<'a>(args: &[Val<'a>], last: bool) -> Out<'a> {
    let (s, wanted, from) = match args {
        [Val::List(list), wanted] => {
            let mut found = -1;
            for (i, item) in list.iter().enumerate() {
                if item?.equals(wanted)? {
                    found = i as i64;
                    if !last {
                        break;
                    }
                }
            }
            return Ok(Val::Int(found));
        }
        [Val::String(s), Val::String(wanted)] => (s, wanted, None),
        [Val::String(s), Val::String(wanted), Val::Int(from)] => (s, wanted, Some(*from)),
        _ => return no_overload(),
    };
    let start = match from {
        None => None,
        // An empty text is found wherever the search starts, even behind the end.
        Some(_) if wanted.is_empty() && from.is_some_and(|f| f >= 0) => return Ok(Val::Int(from.unwrap_or(0))),
        Some(from) => match strings::offset(s, from) {
            Some(at) => Some(at),
            None if from > 0 => return Ok(Val::Int(-1)),
            None => return error(format!("index out of range: {from}")),
        },
    };
    let found = if last {
        // The last place at which a match may start.
        let latest = start.unwrap_or(s.len());
        let mut end = latest.saturating_add(wanted.len()).min(s.len());
        // Slicing needs a boundary; moving back cannot exclude a match that starts early enough.
        while !s.is_char_boundary(end) {
            end -= 1;
        }
        s[..end].rfind(&**wanted)
    } else {
        let from = start.unwrap_or(0);
        s[from..].find(&**wanted).map(|i| i + from)
    };
    // Indexes count code points.
    Ok(Val::Int(found.map_or(-1, |i| s[..i].chars().count() as i64)))
}

fn slice<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let [list, Val::Int(start), Val::Int(end)] = args else {
        return no_overload();
    };
    let items = items(list)?;
    let (start, end, len) = (*start, *end, items.len() as i64);
    if start < 0 || end < 0 {
        return error(format!("cannot slice({start}, {end}), negative indexes not supported"));
    }
    if start > end {
        return error(format!(
            "cannot slice({start}, {end}), start index must be less than or equal to end index"
        ));
    }
    if end > len {
        return error(format!("cannot slice({start}, {end}), list is length {len}"));
    }
    Ok(items[start as usize..end as usize].to_vec().into())
}

fn flatten<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let depth = match args.get(1) {
        None => 1,
        Some(Val::Int(n)) if *n < 0 => return error("level must be non-negative"),
        // Lists are nested no deeper than expressions and objects are.
        Some(Val::Int(n)) => *n.min(&1000),
        _ => return no_overload(),
    };
    let mut out = items(&args[0])?;
    for _ in 0..depth {
        // Nothing is left to flatten: further levels would only copy the list.
        if !out.iter().any(|v| matches!(v, Val::List(_))) {
            break;
        }
        let mut next = Vec::new();
        for item in out {
            match item {
                Val::List(list) => next.extend(list.to_vec()?),
                other => next.push(other),
            }
        }
        out = next;
    }
    Ok(out.into())
}

fn distinct<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let mut seen = std::collections::BTreeSet::new();
    let mut out: Vec<Val<'a>> = Vec::new();
    for item in items(&args[0])? {
        // Values with a key are found in a set; only others are compared pairwise.
        let new = match crate::value::Key::find(&item) {
            Some(key) => seen.insert(key),
            None => {
                let mut new = true;
                for before in &out {
                    if before.equals(&item)? {
                        new = false;
                        break;
                    }
                }
                new
            }
        };
        if new {
            out.push(item);
        }
    }
    Ok(out.into())
}

fn reverse<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let mut items = items(&args[0])?;
    items.reverse();
    Ok(items.into())
}

fn sorted<'a>(mut pairs: Vec<(Val<'a>, Val<'a>)>) -> Out<'a> {
    // Checked before: sorting needs a total order.
    for pair in pairs.windows(2) {
        if pair[0].0.type_name() != pair[1].0.type_name() {
            return error("list elements must have the same type");
        }
        pair[0].0.compare(&pair[1].0)?;
    }
    // Total after the checks above: all elements have one type, and none is NaN.
    pairs.sort_by(|a, b| a.0.compare(&b.0).unwrap_or(Ordering::Equal));
    Ok(pairs.into_iter().map(|(_, v)| v).collect::<Vec<_>>().into())
}

fn sort<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    sorted(items(&args[0])?.into_iter().map(|v| (v.clone(), v)).collect())
}

fn sort_by<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let (list, keys) = (items(&args[0])?, items(&args[1])?);
    sorted(keys.into_iter().zip(list).collect())
}

fn range<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::Int(n)] if *n > MAX_RANGE => error(format!("lists.range({n}) exceeds limit {MAX_RANGE}")),
        [Val::Int(n)] => Ok((0..*n).map(Val::Int).collect::<Vec<_>>().into()),
        _ => no_overload(),
    }
}
