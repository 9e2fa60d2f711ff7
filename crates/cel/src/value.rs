//! [`Val`]: values of expressions. Strings, lists, maps and objects of the input are borrowed, never copied.
//!
//! [`Val::of`] makes one from a tree. `compare` and `convert` have the operations, `library` the functions.

pub(crate) mod authority;
mod collections;
mod compare;
mod convert;
pub(crate) mod format;
pub(crate) mod json_patch;
mod key;
pub(crate) mod net;
pub(crate) mod semver;
pub(crate) mod url;

pub use collections::{Dict, List, Record, WrongNames};
pub(crate) use compare::identity;
pub use convert::TreeError;
pub use key::Key;

use crate::time_value::Stamp;
use crate::types::ObjectType;
use authority::Authority;
use format::Format;
use net::Net;
use semver::Semver;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use torana_apimachinery::Map;
use torana_apimachinery::quantity::Quantity;
use url::Url;

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
    /// An object of the input.
    Object(&'a Map, &'a ObjectType),
    /// An object that the expression constructed.
    Record(Arc<Record<'a>>),
    /// A type, by its name.
    Type(Arc<str>),
    Optional(Option<Arc<Val<'a>>>),
    /// True for a sum or difference.
    Quantity(Arc<Quantity>, bool),
    Net(Net),
    Url(Arc<Url>),
    Semver(Arc<Semver>),
    /// A named format, such as that of DNS labels.
    Format(&'static Format),
    /// An authorizer, a check, or a decision.
    Authority(Authority<'a>),
}

/// A string, borrowed from the input or shared.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Part of the input.
    Borrowed(&'a str),
    /// A literal of the expression, or computed.
    Shared(Arc<str>),
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

impl std::fmt::Display for Fail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Error(message) => message,
            Self::Cost => "operation cancelled: actual cost limit exceeded",
        })
    }
}

impl std::error::Error for Fail {}

pub(crate) fn error<T>(message: impl Into<Cow<'static, str>>) -> Result<T, Fail> {
    Err(Fail::Error(message.into()))
}

/// The message of functions for values that they do not take; the evaluator adds their types.
pub(crate) const NO_OVERLOAD: &str = "no such overload";

pub(crate) fn no_overload<T>() -> Result<T, Fail> {
    error(NO_OVERLOAD)
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

impl<'a> Val<'a> {
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
            // cel-go sees objects of the input as maps at run time.
            Self::Object(..) => "map",
            Self::Record(of) => &of.of.name,
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(..) => "kubernetes.Quantity",
            Self::Net(net) => net.type_name(),
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authority(of) => of.type_name(),
        }
    }

    /// The type's name with its type parameters, as some of cel-go's messages have it.
    pub(crate) fn full_type_name(&self) -> &str {
        match self {
            Self::List(_) => "list(dyn)",
            Self::Map(_) | Self::Object(..) => "map(dyn, dyn)",
            other => other.type_name(),
        }
    }

    /// The name of the Go type that represents the value, which some of cel-go's messages have.
    pub(crate) fn go_type(&self) -> Option<&'static str> {
        Some(match self {
            Self::Null => "types.Null",
            Self::Bool(_) => "types.Bool",
            Self::Int(_) => "types.Int",
            Self::Uint(_) => "types.Uint",
            Self::Double(_) => "types.Double",
            Self::String(_) => "types.String",
            Self::Bytes(_) => "types.Bytes",
            Self::Duration(_) => "types.Duration",
            Self::Timestamp(_) => "types.Timestamp",
            Self::Type(_) => "*types.Type",
            Self::Optional(_) => "*types.Optional",
            Self::Quantity(..) => "cel.Quantity",
            Self::Net(Net::Ip(_)) => "cel.IP",
            Self::Net(Net::Cidr(..)) => "cel.CIDR",
            Self::Url(_) => "cel.URL",
            Self::Semver(_) => "cel.Semver",
            Self::Format(_) => "cel.Format",
            // No Go type is named for these in the messages that use it.
            Self::List(_) | Self::Map(_) | Self::Object(..) | Self::Record(_) | Self::Authority(_) => return None,
        })
    }
}
