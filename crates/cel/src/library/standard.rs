//! The operators and functions of the language itself: arithmetic, comparison, logic, access by index, `size` and
//! `type`. The bodies of conversions are in `conversions`, functions on strings in `strings`.

mod conversions;

pub(crate) use conversions::to_string;

use super::{Body, Declaration};
use crate::time_value::Stamp;
use crate::types::ListType;
use crate::value::{Dict, Fail, Key, List, Out, Val, error, identity, no_overload};
use conversions::{to_bool, to_bytes, to_double, to_duration, to_int, to_timestamp, to_uint};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use Body::Strict;

const COMPARED: &[&str] = &[
    "(bool, bool) bool",
    "(int, int) bool",
    "(int, double) bool",
    "(int, uint) bool",
    "(uint, uint) bool",
    "(uint, double) bool",
    "(uint, int) bool",
    "(double, double) bool",
    "(double, int) bool",
    "(double, uint) bool",
    "(string, string) bool",
    "(bytes, bytes) bool",
    "(timestamp, timestamp) bool",
    "(duration, duration) bool",
];

/// The overloads are in the order of cel-go's standard library, because the first one that matches binds the
/// type parameters.
pub(super) const OPERATORS: &[Declaration] = &[
    ("_&&_", Body::And, &["(bool, bool) bool"]),
    ("_||_", Body::Or, &["(bool, bool) bool"]),
    ("_?_:_", Body::Conditional, &["(bool, A, A) A"]),
    ("@not_strictly_false", Body::NotStrictlyFalse, &["(bool) bool"]),
    ("!_", Strict(not), &["(bool) bool"]),
    ("-_", Strict(negate), &["(double) double", "(int) int"]),
    ("_==_", Strict(equals), &["(A, A) bool"]),
    ("_!=_", Strict(differs), &["(A, A) bool"]),
    ("_<_", Strict(less), COMPARED),
    ("_<=_", Strict(less_or_equal), COMPARED),
    ("_>_", Strict(greater), COMPARED),
    ("_>=_", Strict(greater_or_equal), COMPARED),
    (
        "_+_",
        Strict(add),
        &[
            "(bytes, bytes) bytes",
            "(double, double) double",
            "(duration, duration) duration",
            "(duration, timestamp) timestamp",
            "(timestamp, duration) timestamp",
            "(int, int) int",
            "(list(A), list(A)) list(A)",
            "(string, string) string",
            "(uint, uint) uint",
        ],
    ),
    (
        "_-_",
        Strict(subtract),
        &[
            "(double, double) double",
            "(duration, duration) duration",
            "(int, int) int",
            "(timestamp, duration) timestamp",
            "(timestamp, timestamp) duration",
            "(uint, uint) uint",
        ],
    ),
    (
        "_*_",
        Strict(multiply),
        &["(double, double) double", "(int, int) int", "(uint, uint) uint"],
    ),
    (
        "_/_",
        Strict(divide),
        &["(double, double) double", "(int, int) int", "(uint, uint) uint"],
    ),
    ("_%_", Strict(modulo), &["(int, int) int", "(uint, uint) uint"]),
    ("@in", Strict(contains), &["(A, list(A)) bool", "(A, map(A, B)) bool"]),
    (
        "_[_]",
        Strict(unplanned),
        &[
            "(list(A), int) A",
            "(map(A, B), A) B",
            "(optional(list(A)), int) optional(A)",
            "(optional(map(A, B)), A) optional(B)",
        ],
    ),
    (
        "_[?_]",
        Strict(unplanned),
        &[
            "(list(A), int) optional(A)",
            "(optional(list(A)), int) optional(A)",
            "(map(A, B), A) optional(B)",
            "(optional(map(A, B)), A) optional(B)",
        ],
    ),
    (
        "cel.@mapInsert",
        Strict(insert),
        &["(map(A, B), A, B) map(A, B)", "(map(A, B), map(A, B)) map(A, B)"],
    ),
];

pub(super) const FUNCTIONS: &[Declaration] = &[
    (
        "size",
        Strict(size),
        &[
            "(bytes) int",
            "bytes.() int",
            "(list(A)) int",
            "list(A).() int",
            "(map(A, B)) int",
            "map(A, B).() int",
            "(string) int",
            "string.() int",
        ],
    ),
    ("type", Strict(type_of), &["(A) type(A)"]),
    ("dyn", Strict(dynamic), &["(A) dyn"]),
    ("bool", Strict(to_bool), &["(bool) bool", "(string) bool"]),
    ("bytes", Strict(to_bytes), &["(bytes) bytes", "(string) bytes"]),
    (
        "double",
        Strict(to_double),
        &["(double) double", "(int) double", "(string) double", "(uint) double"],
    ),
    (
        "int",
        Strict(to_int),
        &[
            "(int) int",
            "(double) int",
            "(duration) int",
            "(string) int",
            "(timestamp) int",
            "(uint) int",
        ],
    ),
    (
        "uint",
        Strict(to_uint),
        &["(uint) uint", "(double) uint", "(int) uint", "(string) uint"],
    ),
    (
        "string",
        Strict(to_string),
        &[
            "(string) string",
            "(bool) string",
            "(bytes) string",
            "(double) string",
            "(duration) string",
            "(int) string",
            "(timestamp) string",
            "(uint) string",
            "(IP) string",
            "(CIDR) string",
        ],
    ),
    (
        "duration",
        Strict(to_duration),
        &["(duration) duration", "(int) duration", "(string) duration"],
    ),
    (
        "timestamp",
        Strict(to_timestamp),
        &["(timestamp) timestamp", "(int) timestamp", "(string) timestamp"],
    ),
];

fn overflow<'a>(kind: &str) -> Out<'a> {
    error(format!("{kind} overflow"))
}

fn int<'a>(n: Option<i64>) -> Out<'a> {
    n.map_or_else(|| overflow("integer"), |n| Ok(Val::Int(n)))
}

fn uint<'a>(n: Option<u64>) -> Out<'a> {
    n.map_or_else(|| overflow("unsigned integer"), |n| Ok(Val::Uint(n)))
}

fn span<'a>(n: Option<i64>) -> Out<'a> {
    n.map_or_else(|| overflow("duration"), |n| Ok(Val::Duration(n)))
}

fn stamp<'a>(t: Option<Stamp>) -> Out<'a> {
    t.map_or_else(|| overflow("timestamp"), |t| Ok(Val::Timestamp(t)))
}

fn not<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::Bool(b)] => Ok(Val::Bool(!*b)),
        _ => no_overload(),
    }
}

fn negate<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::Int(n)] => int(n.checked_neg()),
        [Val::Double(f)] => Ok(Val::Double(-*f)),
        _ => no_overload(),
    }
}

fn equals<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    // Kubernetes' types only compare with their like; anything else is an error instead of false.
    if !args[0].compares_with(&args[1]) {
        return no_overload();
    }
    args[0].equals(&args[1]).map(Val::Bool)
}

fn differs<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    // An error of the comparison counts as a difference, as in cel-go: that of an element that its schema does not
    // allow, too.
    match equals(args) {
        Ok(Val::Bool(same)) => Ok(Val::Bool(!same)),
        Err(Fail::Cost) => Err(Fail::Cost),
        _ => Ok(Val::Bool(true)),
    }
}

fn ordered<'a>(args: &[Val<'a>], holds: fn(Ordering) -> bool) -> Out<'a> {
    args[0].compare(&args[1]).map(|order| Val::Bool(holds(order)))
}

fn less<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    ordered(args, Ordering::is_lt)
}

fn less_or_equal<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    ordered(args, Ordering::is_le)
}

fn greater<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    ordered(args, Ordering::is_gt)
}

fn greater_or_equal<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    ordered(args, Ordering::is_ge)
}

pub(super) fn add<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    if let [Val::List(left), Val::List(right)] = args {
        return add_lists(left, right);
    }
    match (&args[0], &args[1]) {
        (Val::Int(a), Val::Int(b)) => int(a.checked_add(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_add(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a + b)),
        (Val::String(a), Val::String(b)) => Ok([&**a, &**b].concat().into()),
        (Val::Bytes(a), Val::Bytes(b)) => Ok(Val::Bytes([&**a, &**b].concat().into())),
        (Val::Duration(a), Val::Duration(b)) => span(a.checked_add(*b)),
        (Val::Timestamp(t), Val::Duration(d)) | (Val::Duration(d), Val::Timestamp(t)) => stamp(t.plus(*d)),
        _ => no_overload(),
    }
}

/// Adds lists. Sets and keyed lists are merged: an element of the right list replaces its counterpart in the
/// left one.
fn add_lists<'a>(left: &mut List<'a>, right: &List<'a>) -> Out<'a> {
    // The left list decides how elements are identified.
    let kind = left.list_type();
    let right = right.to_vec()?;
    if *kind != ListType::Atomic {
        let mut items = left.to_vec()?;
        let ids = items.iter().enumerate().map(|(i, item)| (identity(item, kind), i));
        let mut places: BTreeMap<_, usize> = ids.collect();
        for item in right {
            match places.entry(identity(&item, kind)) {
                Entry::Occupied(place) => items[*place.get()] = item,
                Entry::Vacant(place) => {
                    place.insert(items.len());
                    items.push(item);
                }
            }
        }
        return Ok(Val::List(List::Typed(Arc::new(items), kind)));
    }
    Ok(match left {
        // A list that nothing else refers to grows in place.
        List::Shared(items) => {
            Arc::make_mut(items).extend(right);
            Val::List(List::Shared(std::mem::take(items)))
        }
        _ => {
            let mut items = left.to_vec()?;
            items.extend(right);
            items.into()
        }
    })
}

fn subtract<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(a), Val::Int(b)) => int(a.checked_sub(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_sub(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a - b)),
        (Val::Duration(a), Val::Duration(b)) => span(a.checked_sub(*b)),
        (Val::Timestamp(a), Val::Timestamp(b)) => span(a.since(*b)),
        // The smallest duration has no negative.
        (Val::Timestamp(t), Val::Duration(d)) => stamp(d.checked_neg().and_then(|d| t.plus(d))),
        _ => no_overload(),
    }
}

fn multiply<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(a), Val::Int(b)) => int(a.checked_mul(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_mul(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a * b)),
        _ => no_overload(),
    }
}

fn divide<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => error("division by zero"),
        (Val::Int(a), Val::Int(b)) => int(a.checked_div(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_div(*b)),
        (Val::Double(a), Val::Double(b)) => Ok(Val::Double(a / b)),
        _ => no_overload(),
    }
}

fn modulo<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match (&args[0], &args[1]) {
        (Val::Int(_), Val::Int(0)) | (Val::Uint(_), Val::Uint(0)) => error("modulus by zero"),
        (Val::Int(a), Val::Int(b)) => int(a.checked_rem(*b)),
        (Val::Uint(a), Val::Uint(b)) => uint(a.checked_rem(*b)),
        _ => no_overload(),
    }
}

fn contains<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match (&args[0], &args[1]) {
        // An element that is not of its schema's type ends the search with its error.
        (wanted, Val::List(list)) => {
            for item in list.iter() {
                if item?.equals(wanted)? {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        }
        (wanted, Val::Map(map)) => Ok(Val::Bool(map.get(wanted).is_some())),
        // Members of declared objects are looked up by their names in expressions.
        (name, object @ Val::Object(..)) => Ok(Val::Bool(element(object, name).transpose()?.is_some())),
        _ => no_overload(),
    }
}

/// Lookups are steps of their own in plans.
fn unplanned<'a>(_: &mut [Val<'a>]) -> Out<'a> {
    no_overload()
}

/// A key as errors show it.
pub(crate) fn format_value(key: &Val<'_>) -> String {
    match to_string(&mut [key.clone()]) {
        Ok(Val::String(s)) => s.to_string(),
        _ => key.type_name().to_owned(),
    }
}

pub(crate) fn element<'a>(of: &Val<'a>, key: &Val<'a>) -> Option<Out<'a>> {
    match (of, key) {
        (Val::List(list), Val::Int(i)) => usize::try_from(*i).ok().and_then(|i| list.get(i)),
        (Val::List(list), Val::Uint(i)) => usize::try_from(*i).ok().and_then(|i| list.get(i)),
        // Whole doubles are valid indexes in cel-go.
        (Val::List(list), Val::Double(f)) if f.fract() == 0.0 && *f >= 0.0 => list.get(*f as usize),
        (Val::Map(map), key) => map.element(key),
        (Val::Object(m, ty), Val::String(name)) => {
            let field = ty.field(name)?;
            // A null counts as absent.
            let v = m.get(&field.key).filter(|v| !v.is_null())?;
            Some(Val::of(v, &field.schema))
        }
        (Val::Record(of), Val::String(name)) => of.field(name),
        (Val::List(_), key) => Some(no_index(key)),
        // As in cel-go, a scalar has no element with any key.
        _ => None,
    }
}

/// Lists have no such index.
pub(crate) fn no_index<'a>(key: &Val<'a>) -> Out<'a> {
    match key {
        Val::Double(f) => error(format!("unsupported index value {f} in list")),
        key => error(format!("unsupported index type '{}' in list", key.type_name())),
    }
}

/// The key of a map under construction.
pub(crate) fn key<'a>(v: &Val<'a>) -> Result<Key<'a>, crate::value::Fail> {
    match v {
        Val::Double(_) => error("unsupported key type: double"),
        _ => Key::find(v).map_or_else(|| error(format!("unsupported key type: {}", v.type_name())), Ok),
    }
}

fn insert<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let new = match args {
        [_, k, v] => vec![(k.clone(), v.clone())],
        [_, Val::Map(more)] => more.entries()?,
        _ => return no_overload(),
    };
    // Only the accumulator of a loop gets here, which is a computed map.
    let Val::Map(Dict::Shared(map)) = &mut args[0] else {
        return no_overload();
    };
    let mut map = std::mem::take(map);
    for (k, v) in new {
        // The planner takes the accumulator out of its slot, so there is one owner and no copy is made.
        let before = Arc::make_mut(&mut map).insert(key(&k)?, v);
        // A repeated key is an error here, unlike in map literals.
        if before.is_some() {
            return error(format!("insert failed: key {} already exists", format_value(&k)));
        }
    }
    Ok(Val::Map(Dict::Shared(map)))
}

fn size<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    let n = match &args[0] {
        // Code points, as the language specifies.
        Val::String(s) => s.chars().count(),
        Val::Bytes(b) => b.len(),
        Val::List(l) => l.len(),
        Val::Map(m) => m.len(),
        Val::Object(m, _) => m.len(),
        _ => return no_overload(),
    };
    Ok(Val::Int(n as i64))
}

fn type_of<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    Ok(Val::Type(args[0].type_name().into()))
}

fn dynamic<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    Ok(std::mem::take(&mut args[0]))
}
