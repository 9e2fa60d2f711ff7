//! The evaluator (upstream's `jsonpath.go`): each step maps a sequence of values to the next one. Values are
//! borrowed from the object and the path.

use super::{Block, End, Error, Filter, Found, LIMIT, Slice, Step};
use crate::patch::{go_print, go_type};
use crate::value::{Str, Value};
use std::cmp::Ordering;

/// Evaluates a block on an object.
pub(super) fn block<'a>(block: &'a Block, object: &'a Value) -> Result<Vec<Found<'a>>, Error> {
    match block {
        Block::Text(text) => Ok(vec![Found::Constant(text)]),
        Block::Action(steps) => {
            // Each block has its own budget; their number is bounded by the length of the path.
            let mut walk = Walk { left: LIMIT };
            walk.steps(steps, vec![Found::Value(object)]).map_err(|f| f.error)
        }
    }
}

/// A failed step. Existence filters ignore the error and ask whether the step had values.
struct Failure {
    error: Error,
    had_values: bool,
}

type Values<'a> = Result<Vec<Found<'a>>, Failure>;

struct Walk {
    /// How many more values may be visited.
    left: usize,
}

impl<'a> Found<'a> {
    /// The value, if it is one of JSON.
    pub fn value(self) -> Option<&'a Value> {
        match self {
            Self::Value(v) | Self::Constant(v) => Some(v),
            Self::Byte(_) => None,
        }
    }

    fn is_null(self) -> bool {
        self.value().is_some_and(Value::is_null)
    }

    /// The members, items or bytes of a container.
    fn children(self) -> Vec<Self> {
        match self.value() {
            Some(Value::Object(m)) => m.values().map(Found::Value).collect(),
            Some(Value::Array(a)) => a.iter().map(Found::Value).collect(),
            Some(Value::String(s)) => s.bytes().map(Found::Byte).collect(),
            _ => Vec::new(),
        }
    }

    /// The number of [`children`](Self::children).
    fn len(self) -> usize {
        match self.value() {
            Some(Value::Object(m)) => m.len(),
            Some(Value::Array(a)) => a.len(),
            Some(Value::String(s)) => s.len(),
            _ => 0,
        }
    }
}

impl Walk {
    fn visit(&mut self, values: usize) -> Result<(), Failure> {
        match self.left.checked_sub(values) {
            // Charged in advance, before the values are collected.
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(failure("too many values to visit", false)),
        }
    }

    fn steps<'a>(&mut self, steps: &'a [Step], mut values: Vec<Found<'a>>) -> Values<'a> {
        for step in steps {
            // One more than the values, so that steps over nothing are charged as well.
            self.visit(values.len() + 1)?;
            values = self.step(step, values)?;
        }
        Ok(values)
    }

    fn step<'a>(&mut self, step: &'a Step, input: Vec<Found<'a>>) -> Values<'a> {
        Ok(match step {
            Step::Field(name) => input.iter().filter_map(|v| member(*v, name)).collect(),
            Step::Wildcard => {
                self.visit(input.iter().map(|v| v.len()).sum())?;
                input.into_iter().flat_map(Found::children).collect()
            }
            Step::Descent => return self.descent(input),
            Step::Slice(slice) => return self.slice(*slice, &input),
            Step::Filter(filter) => return self.filter(filter, &input),
            // Upstream evaluates the members of a union on the same input, with their results in order of the
            // members.
            Step::Union(members) => {
                let had_values = !input.is_empty();
                let mut all = Vec::new();
                for steps in members {
                    let found = self.steps(steps, input.clone());
                    all.append(&mut found.map_err(|f| Failure { had_values, ..f })?);
                }
                all
            }
            Step::Text(text) => vec![Found::Constant(text)],
            Step::Constant(value) => vec![Found::Constant(value); input.len()],
            Step::Keyword(name) => {
                return Err(failure(format!("unrecognized identifier {name}"), !input.is_empty()));
            }
        })
    }

    /// All containers and strings at and below the input that are not empty, parents first.
    fn descent<'a>(&mut self, input: Vec<Found<'a>>) -> Values<'a> {
        let mut found = Vec::new();
        let mut open = input;
        // The stack is processed from its end, so children are pushed in reverse to be visited in document order.
        open.reverse();
        while let Some(value) = open.pop() {
            self.visit(1)?;
            if value.len() == 0 {
                continue;
            }
            found.push(value);
            // Bytes have no children and are not containers.
            if !matches!(value.value(), Some(Value::String(_))) {
                self.visit(value.len())?;
                let mut children = value.children();
                children.reverse();
                open.append(&mut children);
            }
        }
        Ok(found)
    }

    fn slice<'a>(&mut self, slice: Slice, input: &[Found<'a>]) -> Values<'a> {
        let had_values = !input.is_empty();
        let fail = |why: String| Err(failure(why, had_values));
        let mut found = Vec::new();
        // Null lists are skipped; other types are errors.
        for value in input.iter().filter(|v| !v.is_null()) {
            let Some(Value::Array(items)) = value.value() else {
                return fail(format!("{} is not array or slice", type_of(*value)));
            };
            let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let wrap = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
            let start = wrap(slice.start.unwrap_or(0));
            let end = match slice.end {
                End::At(at) => wrap(at),
                End::Open => len,
                // The successor of -1 counts from the end, too.
                End::AfterStart => match slice.start.unwrap_or(0).wrapping_add(1) {
                    at if at <= 0 => at.saturating_add(len),
                    at => at,
                },
            };
            if start == end {
                // As upstream, the lists after an empty slice are not evaluated.
                return Ok(found);
            }
            let outside = |at: i64| format!("array index out of bounds: index {at}, length {len}");
            if start >= len || start < 0 {
                return fail(outside(start));
            }
            if end > len || end < 0 {
                return fail(outside(end - 1));
            }
            if start > end {
                return fail(format!("starting index {start} is greater than ending index {end}"));
            }
            let step = match slice.step {
                None => 1,
                Some(step) if step > 0 => usize::try_from(step).unwrap_or(usize::MAX),
                Some(_) => return fail("step must be > 0".to_owned()),
            };
            // The casts are safe: both indexes were checked against the length.
            let part = items[start as usize..end as usize].iter().step_by(step);
            self.visit(part.len())?;
            found.extend(part.map(Found::Value));
        }
        Ok(found)
    }

    fn filter<'a>(&mut self, filter: &'a Filter, input: &[Found<'a>]) -> Values<'a> {
        let mut found: Vec<Found<'a>> = Vec::new();
        for value in input {
            let Some(Value::Array(items)) = value.value() else {
                let shown = value.value().map_or_else(String::new, go_print);
                return Err(failure(
                    format!("{shown} is not array or slice and cannot be filtered"),
                    true,
                ));
            };
            for item in items.iter().map(Found::Value) {
                self.visit(1)?;
                let left = self.steps(&filter.left, vec![item]);
                let Some((operator, right)) = &filter.comparison else {
                    // Upstream ignores the error here, but not the values that came with it.
                    if left.map_or_else(|f| f.had_values, |values| !values.is_empty()) {
                        found.push(item);
                    }
                    continue;
                };
                // An error inside a comparison fails the whole filter, and counts as having had values.
                let inner = |f: Failure| Failure { had_values: true, ..f };
                let Some(left) = single(left.map_err(inner)?)? else {
                    continue;
                };
                let right = self.steps(right, vec![item]).map_err(inner)?;
                let Some(right) = single(right)? else { continue };
                match compare(left, operator, right) {
                    Ok(true) => found.push(item),
                    Ok(false) => {}
                    Err(why) => return Err(failure(why.to_string(), !found.is_empty())),
                }
            }
        }
        Ok(found)
    }
}

fn failure(why: impl Into<String>, had_values: bool) -> Failure {
    Failure {
        error: Error(why.into()),
        had_values,
    }
}

fn member<'a>(value: Found<'a>, name: &Str) -> Option<Found<'a>> {
    value.value()?.as_object()?.get(name).map(Found::Value)
}

fn single(values: Vec<Found<'_>>) -> Result<Option<Found<'_>>, Failure> {
    match values.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        _ => Err(failure("can only compare one element at a time", true)),
    }
}

fn type_of(value: Found<'_>) -> &'static str {
    match value {
        Found::Byte(_) => "uint8",
        Found::Constant(Value::Int(_)) => "int",
        Found::Value(v) | Found::Constant(v) => go_type(v),
    }
}

/// Why two values cannot be compared. Messages as `text/template` words them.
#[derive(Debug, thiserror::Error)]
enum NotComparable {
    #[error("unrecognized filter operator {0}")]
    Operator(String),
    #[error("invalid type for comparison")]
    Type,
    #[error("incompatible types for comparison")]
    Pair,
}

/// Compares as `text/template` does: only values of one kind, and only numbers and strings have an order.
fn compare(left: Found<'_>, operator: &str, right: Found<'_>) -> Result<bool, NotComparable> {
    if !matches!(operator, "<" | ">" | "==" | "!=" | "<=" | ">=") {
        return Err(NotComparable::Operator(operator.to_owned()));
    }
    // `text/template` compares basic kinds only; a byte of a string counts as one.
    let basic = |v: Found<'_>| !matches!(v.value(), Some(Value::Null | Value::Array(_) | Value::Object(_)));
    if !basic(left) || !basic(right) {
        return Err(NotComparable::Type);
    }
    let integer = |v: Found<'_>| match v {
        Found::Byte(b) => Some(i64::from(b)),
        v => v.value().and_then(Value::as_i64),
    };
    let order = match (integer(left), integer(right), left.value(), right.value()) {
        (Some(l), Some(r), ..) => l.cmp(&r),
        // JSON has no NaN, so two floats are always ordered.
        (_, _, Some(Value::Float(l)), Some(Value::Float(r))) => l.partial_cmp(r).unwrap_or(Ordering::Equal),
        (_, _, Some(Value::String(l)), Some(Value::String(r))) => l.cmp(r),
        (_, _, Some(Value::Bool(l)), Some(Value::Bool(r))) => match operator {
            "==" | "!=" => l.cmp(r),
            _ => return Err(NotComparable::Type),
        },
        _ => return Err(NotComparable::Pair),
    };
    Ok(match operator {
        "==" => order == Ordering::Equal,
        "!=" => order != Ordering::Equal,
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}
