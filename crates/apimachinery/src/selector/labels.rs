//! Label selectors such as `a=b,c!=d,e in (f,g),!h,i>1`, with the grammar and error texts of
//! `k8s.io/apimachinery/pkg/labels`.
//!
//! Start at [`LabelSelector::parse`].

mod parser;

use crate::field::{ErrorList, FieldError, FieldPath, aggregate};
use crate::validation;
use crate::value::{Str, Value};
use parser::Parser;
use std::fmt;

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `k in (a,b)`
    In,
    /// `k notin (a,b)`; also matches if the key is absent.
    NotIn,
    /// `k=a`
    Equals,
    /// `k==a`
    DoubleEquals,
    /// `k!=a`; also matches if the key is absent.
    NotEquals,
    /// `k`
    Exists,
    /// `!k`
    DoesNotExist,
    /// `k>1`; both sides are 64-bit integers.
    GreaterThan,
    /// `k<1`; both sides are 64-bit integers.
    LessThan,
}

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Str,
    operator: Operator,
    /// Sorted and unique. Boxed because watches keep their selectors, and a parsed list has spare capacity.
    values: Box<[Str]>,
}

/// A conjunction of requirements, sorted by key; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

/// Why a selector is invalid; worded as upstream words it for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A token that the grammar does not allow in its place.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// Its text; empty at the end of the selector.
        found: String,
        /// The tokens that may stand in its place.
        expected: &'static str,
    },
    /// Anything but a parenthesis after `in` or `notin`.
    #[error("found '{0}' expected: '('")]
    NoParenthesis(String),
    /// One of the requirements of a text.
    #[error("unable to parse requirement: {0}")]
    Unparsable(#[source] Box<Error>),
    /// An operator that label selectors do not have.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// The key or a value is invalid, or the number of values is wrong: the field errors, joined.
    #[error("{0}")]
    Requirement(String),
}

impl Error {
    fn unexpected(found: &str, expected: &'static str) -> Self {
        Self::Unexpected {
            found: found.to_owned(),
            expected,
        }
    }
}

// === impl Requirement ===

impl Requirement {
    /// Validates and builds a requirement.
    ///
    /// # Errors
    /// The key or a value is invalid, or the number of values is wrong.
    pub fn try_new(key: &str, operator: Operator, mut values: Vec<Str>) -> Result<Self, Error> {
        // Sorted for binary search in `matches`, and upstream keeps values as sorted sets, too.
        values.sort_unstable();
        values.dedup();
        let mut errors = ErrorList::new();
        check_key(key, &mut errors);
        let path = FieldPath::new("values");
        let shown = || Value::from(values.iter().map(|v| Value::from(v.as_str())).collect::<Vec<_>>());
        let wrong = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(why) = wrong {
            errors.push(FieldError::invalid(&path, shown(), why));
        }
        let ordered = matches!(operator, Operator::GreaterThan | Operator::LessThan);
        for (i, v) in values.iter().enumerate() {
            if ordered && v.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push_with(|| FieldError::invalid(&path.index(i), v.as_str(), why));
            }
            // Every operator checks its values as label values, comparisons included.
            let bad = validation::label_value(v);
            if !bad.is_empty() {
                // Upstream's path has the index first and the key behind it.
                errors.push_with(|| FieldError::invalid(&path.index(i).key(key), v.as_str(), bad.join("; ")));
            }
        }
        if errors.is_empty() {
            Ok(Self {
                key: Str::new(key),
                operator,
                values: values.into_boxed_slice(),
            })
        } else {
            Err(Error::Requirement(aggregate(&errors)))
        }
    }

    /// The key of the label that it constrains.
    pub fn key(&self) -> &str {
        &self.key
    }
    /// How it compares the label with its [`values`](Self::values).
    pub fn operator(&self) -> Operator {
        self.operator
    }
    /// The values in sorted order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &str> {
        self.values.iter().map(Str::as_str)
    }

    /// True if a label with this value (`None`: the label is absent) satisfies the requirement.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let among = |v: &str| self.values.binary_search_by(|x| x.as_str().cmp(v)).is_ok();
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(among),
            // An absent label satisfies the negative operators, as documented for `kubectl`.
            Operator::NotIn | Operator::NotEquals => value.is_none_or(|v| !among(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan | Operator::LessThan => {
                let number = |v: &str| v.parse::<i64>().ok();
                // Validated in `try_new`, so the first value exists and parses.
                let bound = self.values.first().and_then(|v| number(v));
                match (value.and_then(number), bound) {
                    (Some(v), Some(b)) if self.operator == Operator::GreaterThan => v > b,
                    (Some(v), Some(b)) => v < b,
                    // A label that is absent or not a number matches neither comparison.
                    _ => false,
                }
            }
        }
    }
}

fn check_key(key: &str, errors: &mut ErrorList) {
    let bad = validation::qualified_name(key);
    if !bad.is_empty() {
        errors.push(FieldError::invalid(&FieldPath::default(), key, bad.join("; ")));
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let infix = match self.operator {
            Operator::Exists => return f.write_str(&self.key),
            Operator::DoesNotExist => return write!(f, "!{}", self.key),
            Operator::In => " in (",
            Operator::NotIn => " notin (",
            Operator::Equals => "=",
            Operator::DoubleEquals => "==",
            Operator::NotEquals => "!=",
            Operator::GreaterThan => ">",
            Operator::LessThan => "<",
        };
        write!(f, "{}{infix}{}", self.key, self.values.join(","))?;
        if matches!(self.operator, Operator::In | Operator::NotIn) {
            f.write_str(")")
        } else {
            Ok(())
        }
    }
}

// === impl LabelSelector ===

impl LabelSelector {
    /// A selector that matches every object.
    pub const fn everything() -> Self {
        Self {
            requirements: Vec::new(),
            nothing: false,
        }
    }

    /// A selector that matches no object.
    pub const fn nothing() -> Self {
        Self {
            requirements: Vec::new(),
            nothing: true,
        }
    }

    /// Builds a selector from requirements.
    pub fn of(mut requirements: Vec<Requirement>) -> Self {
        // Stable, so several requirements of one key stay in the order of the text.
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            requirements,
            nothing: false,
        }
    }

    /// Parses a selector; the empty text selects everything.
    ///
    /// # Errors
    /// The text is not a selector.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Parser::new(text).selector().map(Self::of)
    }

    /// Converts a `metav1.LabelSelector` object: null selects nothing, an empty object everything.
    ///
    /// # Errors
    /// An operator, key or value is invalid.
    pub fn from_object(selector: &Value) -> Result<Self, Error> {
        // A nil pointer in Go: selects nothing, unlike an empty selector.
        let Some(map) = selector.as_object() else {
            return Ok(Self::nothing());
        };
        let mut requirements = Vec::new();
        if let Some(labels) = map.get("matchLabels").and_then(Value::as_object) {
            for (k, v) in labels.iter() {
                let v = Str::new(v.as_str().unwrap_or(""));
                requirements.push(Requirement::try_new(k, Operator::Equals, vec![v])?);
            }
        }
        for e in selector.get("matchExpressions").items() {
            let operator = match e.get("operator").as_str().unwrap_or("") {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(Error::Operator(other.to_owned())),
            };
            let values = e
                .get("values")
                .items()
                .iter()
                .filter_map(Value::as_str)
                .map(Str::new)
                .collect();
            requirements.push(Requirement::try_new(
                e.get("key").as_str().unwrap_or(""),
                operator,
                values,
            )?);
        }
        Ok(Self::of(requirements))
    }

    /// Converts a map of labels, such as `spec.selector` of a Service, to equality requirements. Null
    /// requires nothing.
    pub fn from_map(labels: &Value) -> Self {
        // Not validated: selectors of stored objects may predate today's rules, and an invalid label matches nothing.
        let equal = |(k, v): (&str, &Value)| Requirement {
            key: Str::new(k),
            operator: Operator::Equals,
            values: [Str::new(v.as_str().unwrap_or(""))].into(),
        };
        Self::of(
            labels
                .as_object()
                .map(|m| m.iter().map(equal).collect())
                .unwrap_or_default(),
        )
    }

    /// True if the selector matches everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// True if the labels returned by `get` satisfy all requirements.
    pub fn matches<'a>(&self, get: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(get(&r.key)))
    }

    /// True if the labels in a map object satisfy all requirements.
    pub fn matches_map(&self, labels: &Value) -> bool {
        self.matches(&|k| labels.get(k).as_str())
    }

    /// A label that every match has, with its only value, if a requirement demands one.
    pub fn required(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|r| match r.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => match &r.values[..] {
                [value] => Some((r.key.as_str(), value.as_str())),
                _ => None,
            },
            _ => None,
        })
    }

    /// The value that `key` must equal, if the selector requires a single one.
    pub fn requires_exact(&self, key: &str) -> Option<&str> {
        self.requirements.iter().find_map(|r| match r.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals if r.key == key && r.values.len() == 1 => {
                Some(r.values[0].as_str())
            }
            _ => None,
        })
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            r.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
