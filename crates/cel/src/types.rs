//! Types of expressions, and schemas: what is known about the values a variable can have.

use std::fmt;
use std::sync::Arc;
use torana_apimachinery::Str;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the language's")]
pub enum Type {
    /// Known at run time only.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    Optional(Arc<Type>),
    /// The type of types.
    Type,
    /// A type of a library, by its name.
    Opaque(&'static str),
    /// A type parameter of an overload.
    Param(u32),
    /// The type of an expression that has an error, which no further error is reported about.
    Error,
}

/// An object with declared fields.
#[derive(Debug)]
pub struct ObjectType {
    /// The name, which error messages show.
    pub name: Str,
    /// Sorted by their names in expressions.
    fields: Box<[Field]>,
}

/// A declared field.
#[derive(Debug)]
pub struct Field {
    /// The name in expressions, where characters that identifiers cannot have are escaped.
    pub name: Str,
    /// The name in the object.
    pub key: Str,
    /// What values the field can have.
    pub schema: Schema,
}

/// What is known about the values of a location: their type and their sizes.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The type in expressions.
    pub ty: Type,
    /// The elements of a list, or the values of a map.
    pub items: Option<Arc<Schema>>,
    /// How many elements, characters or bytes a value has at most.
    pub max_size: u64,
    /// True if null is a value.
    pub nullable: bool,
}

/// A schema about which nothing is known.
pub(crate) static DYN: Schema = Schema {
    ty: Type::Dyn,
    items: None,
    max_size: u64::MAX,
    nullable: true,
};

impl ObjectType {
    /// An object type with these fields, in any order.
    pub fn new(name: impl Into<Str>, mut fields: Vec<Field>) -> Self {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            name: name.into(),
            fields: fields.into(),
        }
    }

    /// The field with this name in expressions.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let found = self.fields.binary_search_by(|f| f.name.as_str().cmp(name));
        found.ok().map(|i| &self.fields[i])
    }

    /// The fields, sorted by name.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

/// Identity: two types are the same only if they are one.
impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ObjectType {}

impl Schema {
    /// A schema of a scalar type.
    pub fn scalar(ty: Type, max_size: u64) -> Self {
        Self {
            ty,
            max_size,
            items: None,
            nullable: false,
        }
    }

    /// A schema about which nothing is known.
    pub fn any() -> Self {
        DYN.clone()
    }

    /// A list of `items`.
    pub fn list(items: Self, max_size: u64) -> Self {
        Self {
            ty: Type::List(Arc::new(items.ty.clone())),
            items: Some(Arc::new(items)),
            ..Self::scalar(Type::Dyn, max_size)
        }
    }

    /// A map from strings to `values`.
    pub fn map(values: Self, max_size: u64) -> Self {
        Self {
            ty: Type::Map(Arc::new((Type::String, values.ty.clone()))),
            items: Some(Arc::new(values)),
            ..Self::scalar(Type::Dyn, max_size)
        }
    }

    /// An object.
    pub fn object(of: Arc<ObjectType>) -> Self {
        Self::scalar(Type::Object(of), u64::MAX)
    }
}

impl Type {
    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::List(of) => return write!(f, "list({of})"),
            Self::Map(of) => return write!(f, "map({}, {})", of.0, of.1),
            Self::Object(of) => &of.name,
            Self::Optional(of) => return write!(f, "optional_type({of})"),
            Self::Type => "type",
            Self::Opaque(name) => name,
            Self::Param(_) => "dyn",
            Self::Error => "!error!",
        };
        f.write_str(name)
    }
}
