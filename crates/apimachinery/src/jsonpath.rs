//! [`JsonPath`]: the path language of printer columns and selectable fields
//! (`k8s.io/client-go/util/jsonpath`).
//!
//! Start at [`JsonPath::parse`] and [`JsonPath::find`]. Syntax and results are upstream's with missing keys
//! allowed, oddities included. Two differences: members of an object are visited in sorted instead of random
//! order, and the template keywords `range` and `end` are evaluation errors, since a path is not a template.

mod evaluate;
mod parse;
mod reads;

use super::value::{Str, Value};

/// A parsed path, as in `additionalPrinterColumns` of custom resources.
///
/// ```
/// use torana_apimachinery::jsonpath::{Found, JsonPath};
/// use torana_apimachinery::{Value, json};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pod = json!({"status": {"conditions": [
///     {"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "False"}]}});
///
/// let ready = JsonPath::parse(r#".status.conditions[?(@.type=="Ready")].status"#)?;
/// let found = ready.first(&pod)?.and_then(Found::value);
/// assert_eq!(found.and_then(Value::as_str), Some("True"));
///
/// let types = JsonPath::parse(".status.conditions[*].type")?;
/// assert_eq!(types.find(&pod)?.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    /// More than one only if the text itself contains braces, such as `.a}{.b`.
    blocks: Vec<Block>,
}

/// A text that is not a path, or a path that cannot be evaluated on an object; worded as upstream words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// A value that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// A part of the object.
    Value(&'a Value),
    /// A constant in the path.
    Constant(&'a Value),
    /// A byte of a string: a wildcard visits them like the items of a list.
    Byte(u8),
}

#[derive(Clone, Debug, PartialEq)]
enum Block {
    Text(Value),
    Action(Vec<Step>),
}

/// Maps a sequence of values to the next one.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Str),
    Wildcard,
    Descent,
    Slice(Slice),
    Filter(Filter),
    Union(Vec<Vec<Step>>),
    /// One constant, whatever the input.
    Text(Value),
    /// One constant per input value.
    Constant(Value),
    Keyword(Str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: End,
    step: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    At(i64),
    /// `[i]`: the end follows from the start.
    AfterStart,
    /// `[i:]`
    Open,
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Vec<Step>,
    /// Operator and right side; `None` tests for existence.
    comparison: Option<(Str, Vec<Step>)>,
}

impl JsonPath {
    /// Parses a path such as `.status.conditions[?(@.type=="Ready")].status`.
    ///
    /// # Errors
    /// The first syntax error.
    pub fn parse(path: &str) -> Result<Self, Error> {
        // Callers store paths without braces; upstream's `tableconvertor.go` adds them, too.
        let blocks = parse::template(&format!("{{{path}}}"), 0)?;
        Ok(Self { blocks })
    }

    /// Finds all values that the path leads to.
    ///
    /// # Errors
    /// If a step does not fit the value that it is applied to, or after [`LIMIT`] values have been visited.
    pub fn find<'a>(&'a self, object: &'a Value) -> Result<Vec<Found<'a>>, Error> {
        // Members of a block after the first do not count, but their errors do.
        let mut all = self.blocks.iter().map(|block| evaluate::block(block, object));
        let first = all.next().unwrap_or(Ok(Vec::new()))?;
        for block in all {
            block?;
        }
        Ok(first)
    }

    /// Finds the first value that the path leads to, without allocating for paths of fields only.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn first<'a>(&'a self, object: &'a Value) -> Result<Option<Found<'a>>, Error> {
        match self.fields() {
            // The common case for columns and selectable fields: no list of intermediate values is built.
            Some(mut fields) => Ok(fields.try_fold(object, |v, f| v.as_object()?.get(f)).map(Found::Value)),
            None => Ok(self.find(object)?.first().copied()),
        }
    }

    /// The names of the fields of a path that consists only of them.
    fn fields(&self) -> Option<impl Iterator<Item = &Str>> {
        let [Block::Action(steps)] = self.blocks.as_slice() else {
            return None;
        };
        // Checked before iterating, so that the iterator can be lazy.
        steps
            .iter()
            .all(|s| s.as_field().is_some())
            .then(|| steps.iter().filter_map(Step::as_field))
    }
}

/// The number of values that an evaluation may visit. Repeated `..` would visit exponentially many.
pub const LIMIT: usize = 100_000;

impl Step {
    fn as_field(&self) -> Option<&Str> {
        match self {
            Self::Field(name) => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
