//! [`Val`]: values of expressions. Strings, lists, maps and objects of the input are borrowed, never copied.

use crate::library::{net::Net, semver::Semver, url::Url};
use crate::time_value::{Stamp, parse_duration};
use crate::types::{DYN, ObjectType, Schema, Type};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use torana_apimachinery::quantity::Quantity;
use torana_apimachinery::{Map, Value};

/// A value of an expression.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "the names are the language's")]
pub enum Val<'a> {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Stamp),
    List(List<'a>),
    Map(Dict<'a>),
    Object(&'a Map, &'a ObjectType),
    /// A type, by its name.
    Type(Arc<str>),
    Optional(Option<Arc<Val<'a>>>),
    Quantity(Quantity),
    Net(Net),
    Url(Arc<Url>),
    Semver(Arc<Semver>),
}

/// A string, borrowed from the input or shared.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Of the input.
    Borrowed(&'a str),
    /// Of the expression, or computed.
    Shared(Arc<str>),
}

/// A list, borrowed from the input or computed.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Of the input.
    Tree(&'a [Value], &'a Schema),
    /// Computed.
    Shared(Arc<Vec<Val<'a>>>),
}

/// A map, borrowed from the input or computed.
#[derive(Clone, Debug)]
pub enum Dict<'a> {
    /// Of the input.
    Tree(&'a Map, &'a Schema),
    /// Computed.
    Shared(Arc<BTreeMap<Key<'a>, Val<'a>>>),
}

/// A key of a computed map. Numbers that are equal are the same key, whatever their type.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    /// A boolean.
    Bool(bool),
    /// A number that is integral.
    Int(i128, NumberKind),
    /// A string.
    String(Text<'a>),
}

/// The type a numeric key was written with.
#[derive(Clone, Copy, Debug)]
pub enum NumberKind {
    /// `int`
    Int,
    /// `uint`
    Uint,
}

/// Why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fail {
    /// An error of the expression, which `&&` and `||` may absorb.
    Error(Cow<'static, str>),
    /// The cost limit is exceeded.
    Cost,
}

/// The outcome of an evaluation.
pub type Out<'a> = Result<Val<'a>, Fail>;

pub(crate) fn error<T>(message: impl Into<Cow<'static, str>>) -> Result<T, Fail> {
    Err(Fail::Error(message.into()))
}

pub(crate) fn no_overload<T>() -> Result<T, Fail> {
    error("no such overload")
}

impl Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(s) => s,
            Self::Shared(s) => s,
        }
    }
}

impl<'a> From<&str> for Val<'a> {
    fn from(s: &str) -> Self {
        Self::String(Text::Shared(s.into()))
    }
}

impl<'a> From<String> for Val<'a> {
    fn from(s: String) -> Self {
        Self::String(Text::Shared(s.into()))
    }
}

impl From<bool> for Val<'_> {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<i64> for Val<'_> {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}

impl<'a> From<Vec<Val<'a>>> for Val<'a> {
    fn from(items: Vec<Val<'a>>) -> Self {
        Self::List(List::Shared(Arc::new(items)))
    }
}

impl<'a> From<BTreeMap<Key<'a>, Val<'a>>> for Val<'a> {
    fn from(map: BTreeMap<Key<'a>, Val<'a>>) -> Self {
        Self::Map(Dict::Shared(Arc::new(map)))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a, _), Self::Int(b, _)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => (**a).cmp(&**b),
            (Self::Bool(_), _) | (Self::Int(..), Self::String(_)) => Ordering::Less,
            _ => Ordering::Greater,
        }
    }
}

impl<'a> Key<'a> {
    /// The key that a value is looked up by; `None` if no map has such keys.
    pub(crate) fn find(v: &Val<'a>) -> Option<Self> {
        Some(match v {
            Val::Bool(b) => Self::Bool(*b),
            Val::Int(n) => Self::Int((*n).into(), NumberKind::Int),
            Val::Uint(n) => Self::Int((*n).into(), NumberKind::Uint),
            Val::Double(f) if f.fract() == 0.0 && f.abs() < 1e19 => Self::Int(*f as i128, NumberKind::Int),
            Val::String(s) => Self::String(s.clone()),
            _ => return None,
        })
    }

    pub(crate) fn val(&self) -> Val<'a> {
        match self {
            Self::Bool(b) => Val::Bool(*b),
            // Made from an integer of that type.
            Self::Int(n, NumberKind::Int) => Val::Int(*n as i64),
            Self::Int(n, NumberKind::Uint) => Val::Uint(*n as u64),
            Self::String(s) => Val::String(s.clone()),
        }
    }
}

impl<'a> List<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Tree(items, _) => items.len(),
            Self::Shared(items) => items.len(),
        }
    }

    pub(crate) fn get(&self, i: usize) -> Option<Out<'a>> {
        match self {
            Self::Tree(items, of) => items.get(i).map(|v| Val::of(v, of)),
            Self::Shared(items) => items.get(i).cloned().map(Ok),
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Out<'a>> {
        (0..self.len()).map(|i| self.get(i).unwrap_or(Ok(Val::Null)))
    }

    pub(crate) fn to_vec(&self) -> Result<Vec<Val<'a>>, Fail> {
        self.iter().collect()
    }
}

impl<'a> Dict<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Tree(m, _) => m.len(),
            Self::Shared(m) => m.len(),
        }
    }

    pub(crate) fn get(&self, key: &Val<'a>) -> Option<Out<'a>> {
        match (self, key) {
            (Self::Tree(m, of), Val::String(key)) => m.get(key).map(|v| Val::of(v, of)),
            (Self::Tree(..), _) => None,
            (Self::Shared(m), key) => m.get(&Key::find(key)?).cloned().map(Ok),
        }
    }

    pub(crate) fn entries(&self) -> Result<Vec<(Val<'a>, Val<'a>)>, Fail> {
        match self {
            Self::Tree(m, of) => {
                let pair = |(k, v)| Ok((Val::String(Text::Borrowed(k)), Val::of(v, of)?));
                m.iter().map(pair).collect()
            }
            Self::Shared(m) => Ok(m.iter().map(|(k, v)| (k.val(), v.clone())).collect()),
        }
    }
}

impl<'a> Val<'a> {
    /// The value of a tree, as its schema has it.
    ///
    /// # Errors
    /// The value is not of the schema's type.
    pub fn of(v: &'a Value, schema: &'a Schema) -> Out<'a> {
        Ok(match (v, &schema.ty) {
            (Value::Null, _) if schema.nullable => Self::Null,
            (Value::Null, _) => return error("invalid data, got null for schema with nullable=false"),
            (Value::String(s), Type::String | Type::Dyn) => Self::String(Text::Borrowed(s)),
            (Value::String(s), Type::Duration) => match parse_duration(s) {
                Some(d) => Self::Duration(d),
                None => {
                    return error(format!(
                        "Invalid duration {s}: {}",
                        crate::time_value::duration_error(s)
                    ));
                }
            },
            (Value::String(s), Type::Timestamp) => match Stamp::parse(s).or_else(|| Stamp::parse_date(s)) {
                Some(t) => Self::Timestamp(t),
                None => return error(format!("Invalid date-time formatted string '{s}'")),
            },
            (Value::String(s), Type::Bytes) => match URL_SAFE.decode(s.as_str()) {
                Ok(bytes) => Self::Bytes(bytes.into()),
                Err(_) => return error(format!("Invalid byte formatted string {s}")),
            },
            (Value::Bool(b), Type::Bool | Type::Dyn) => Self::Bool(*b),
            (Value::Int(n), Type::Int | Type::Dyn) => Self::Int(*n),
            (Value::Int(n), Type::Double) => Self::Double(*n as f64),
            (Value::Float(f), Type::Double | Type::Dyn) => Self::Double(*f),
            (Value::Array(items), Type::List(_)) => {
                Self::List(List::Tree(items, schema.items.as_deref().unwrap_or(&DYN)))
            }
            (Value::Array(items), Type::Dyn) => Self::List(List::Tree(items, &DYN)),
            (Value::Object(m), Type::Object(of)) => Self::Object(m, of),
            (Value::Object(m), Type::Map(_)) => Self::Map(Dict::Tree(m, schema.items.as_deref().unwrap_or(&DYN))),
            (Value::Object(m), Type::Dyn) => Self::Map(Dict::Tree(m, &DYN)),
            (_, ty) => return error(format!("invalid data, expected a value of type {ty}")),
        })
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(s) => Some(s),
            _ => None,
        }
    }

    /// The name of the type.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(_, of) => &of.name,
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Net(net) => net.type_name(),
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
        }
    }

    /// Equality of the language: numbers are compared by value, values of different types differ.
    pub(crate) fn equals(&self, other: &Self) -> Result<bool, Fail> {
        torana_apimachinery::interrupt::checkpoint();
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => **a == **b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Optional(None), Self::Optional(None)) => true,
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => a.equals(b)?,
            (Self::Quantity(a), Self::Quantity(b)) => a.cmp(b) == Ordering::Equal,
            (Self::Net(a), Self::Net(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a.compare(b) == Ordering::Equal,
            (Self::List(a), Self::List(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a?.equals(&b?)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(a), Self::Map(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (key, a) in a.entries()? {
                    match b.get(&key) {
                        Some(b) if a.equals(&b?)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Self::Object(a, of), Self::Object(b, _)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for field in of.fields() {
                    let same = match (a.get(&field.key), b.get(&field.key)) {
                        (None, None) => true,
                        (Some(a), Some(b)) if a.is_null() || b.is_null() => a == b,
                        (Some(a), Some(b)) => Self::of(a, &field.schema)?.equals(&Self::of(b, &field.schema)?)?,
                        _ => false,
                    };
                    if !same {
                        return Ok(false);
                    }
                }
                true
            }
            (a, b) => a.number_cmp(b) == Some(Ordering::Equal),
        })
    }

    /// The order of two numbers, which may be of different types; `None` for anything else and for NaN.
    pub(crate) fn number_cmp(&self, other: &Self) -> Option<Ordering> {
        /// Beyond these a double is smaller or larger than every integer.
        fn against(n: i128, f: f64) -> Option<Ordering> {
            if f.is_nan() {
                return None;
            }
            let whole = f.clamp(-1e30, 1e30);
            Some(
                n.cmp(&(whole.trunc() as i128))
                    .then_with(|| 0.0f64.total_cmp(&(whole.fract() + 0.0))),
            )
        }
        let whole = |v: &Self| match v {
            Self::Int(n) => Some(i128::from(*n)),
            Self::Uint(n) => Some(i128::from(*n)),
            _ => None,
        };
        match (self, other, whole(self), whole(other)) {
            (_, _, Some(a), Some(b)) => Some(a.cmp(&b)),
            (Self::Double(a), Self::Double(b), ..) => a.partial_cmp(b),
            (_, Self::Double(b), Some(a), _) => against(a, *b),
            (Self::Double(a), _, _, Some(b)) => against(b, *a).map(Ordering::reverse),
            _ => None,
        }
    }

    /// The order of two values that `<` compares.
    pub(crate) fn compare(&self, other: &Self) -> Result<Ordering, Fail> {
        Ok(match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::String(a), Self::String(b)) => (**a).cmp(&**b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Duration(a), Self::Duration(b)) => a.cmp(b),
            (Self::Timestamp(a), Self::Timestamp(b)) => a.cmp(b),
            (Self::Double(a), _) if a.is_nan() => return error("NaN values cannot be ordered"),
            (_, Self::Double(b)) if b.is_nan() => return error("NaN values cannot be ordered"),
            (a, b) => match a.number_cmp(b) {
                Some(order) => order,
                None => return no_overload(),
            },
        })
    }
}
