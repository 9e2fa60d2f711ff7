//! Types of expressions, and schemas: the types and sizes of the values that a variable can have.

use crate::lexer::{KEYWORDS, RESERVED};
use std::fmt;
use std::sync::Arc;
use torana_apimachinery::Str;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the language's")]
pub enum Type {
    /// Known at run time only.
    Dyn,
    /// Known at run time only, like `Dyn`, but shown differently in errors and not allowed as the range of a
    /// loop. Numbers of the input are doubles.
    Any,
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
    /// A type as a value.
    Type(Arc<Type>),
    /// A type of a library, by its name.
    Opaque(&'static str),
    /// A type parameter of an overload.
    Param(u32),
    /// The type of an expression with an error. Expressions that use it report no further error.
    Error,
}

/// An object with declared fields.
#[derive(Debug)]
pub struct ObjectType {
    /// The name, which error messages show.
    pub name: Str,
    /// Sorted by their names in expressions.
    fields: Box<[Field]>,
    /// The indexes of the fields, sorted by their names in the object.
    by_key: Box<[u32]>,
    /// The schema of undeclared fields, if the object may have any.
    others: Option<&'static Field>,
}

/// A declared field of an [`ObjectType`].
#[derive(Debug)]
pub struct Field {
    /// The name in expressions, where characters that identifiers cannot have are escaped.
    pub name: Str,
    /// The name in the object.
    pub key: Str,
    /// The type and size of the field's values.
    pub schema: Schema,
}

/// The type and the maximum sizes of the values at one place of an object.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The type in expressions.
    pub ty: Type,
    /// The elements of a list, or the values of a map.
    pub items: Option<Arc<Schema>>,
    /// The schema of a map's keys, if it bounds their sizes.
    pub keys: Option<Arc<Schema>>,
    /// Maximum number of elements, characters or bytes of a value.
    pub max_size: u64,
    /// True if null is a value.
    pub nullable: bool,
    /// How elements of a list are identified.
    pub list_type: ListType,
    /// True if expressions may escape the key that a map has the value under: `extra.example__dot__org` for
    /// `example.org`.
    pub escaped_key: bool,
}

/// How elements are identified when lists are compared and added: `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// By their place in the list.
    #[default]
    Atomic,
    /// By their value; their order does not matter.
    Set,
    /// By the values of these keys; their order does not matter.
    Map(Arc<[Str]>),
}

/// A schema that restricts nothing.
pub(crate) const ANY: Schema = Schema {
    ty: Type::Dyn,
    items: None,
    keys: None,
    max_size: u64::MAX,
    nullable: true,
    list_type: ListType::Atomic,
    escaped_key: false,
};

pub(crate) static DYN: Schema = ANY;

/// The schema of JSON without a schema of its own.
const JSON: Schema = Schema {
    ty: Type::Any,
    escaped_key: true,
    ..ANY
};

/// The schema of elements and values of this type that have none of their own.
pub(crate) fn untyped(within: &Type) -> &'static Schema {
    static WITHIN: Schema = JSON;
    match within {
        Type::Any => &WITHIN,
        _ => &DYN,
    }
}

/// The schema of any field of an open type.
static ANY_FIELD: Field = Field {
    name: Str::const_new(""),
    key: Str::const_new(""),
    schema: ANY,
};

/// A field that exists but has no type.
static UNTYPED_FIELD: Field = Field {
    name: Str::const_new(""),
    key: Str::const_new(""),
    schema: Schema {
        ty: Type::Opaque(""),
        ..ANY
    },
};

impl ObjectType {
    /// An object type with these fields, in any order.
    pub fn new(name: impl Into<Str>, mut fields: Vec<Field>) -> Self {
        // Sorted for lookup by name; definitions may have thousands of properties.
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let mut by_key: Box<[u32]> = (0..fields.len() as u32).collect();
        by_key.sort_by(|a, b| fields[*a as usize].key.cmp(&fields[*b as usize].key));
        Self {
            name: name.into(),
            fields: fields.into(),
            by_key,
            others: None,
        }
    }

    /// An object type that allows any field.
    pub fn open(name: impl Into<Str>) -> Self {
        Self {
            others: Some(&ANY_FIELD),
            ..Self::new(name, Vec::new())
        }
    }

    /// The type with these fields. Upstream's lookup also finds any other field, but without a type.
    pub(crate) fn with_untyped(name: &'static str, fields: Vec<Field>) -> Self {
        Self {
            others: Some(&UNTYPED_FIELD),
            ..Self::new(name, fields)
        }
    }

    /// The field with this name in expressions.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let found = self.fields.binary_search_by(|f| f.name.as_str().cmp(name));
        // Open types answer every name with a field of their own.
        found.map_or(self.others, |i| Some(&self.fields[i]))
    }

    /// The field with this name in the object.
    pub(crate) fn field_of(&self, key: &str) -> Option<&Field> {
        let found = self
            .by_key
            .binary_search_by(|i| self.fields[*i as usize].key.as_str().cmp(key));
        found.ok().map(|i| &self.fields[self.by_key[i] as usize])
    }

    /// True if any field is allowed.
    pub(crate) fn is_open(&self) -> bool {
        self.others.is_some()
    }

    /// The fields, sorted by name.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

/// Types are equal if they are the same instance, or if both are open and have the same name.
impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        // By address: schemas are shared by `Arc`, and comparing large types field by field would dominate checking.
        std::ptr::eq(self, other) || (self.others.is_some() && other.others.is_some() && self.name == other.name)
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
            keys: None,
            nullable: false,
            list_type: ListType::Atomic,
            escaped_key: false,
        }
    }

    /// A schema of any type and size.
    pub fn any() -> Self {
        ANY
    }

    /// A schema of arbitrary JSON as Go's decoder reads it: all numbers are doubles. Expressions may escape
    /// the keys of its objects.
    pub fn json() -> Self {
        JSON
    }

    /// An object with these fields, whose names need no escape.
    pub fn record(name: &str, fields: Vec<(&str, Self)>) -> Self {
        let field = |(name, schema): (&str, Self)| Field {
            name: name.into(),
            key: name.into(),
            schema,
        };
        Self::object(Arc::new(ObjectType::new(name, fields.into_iter().map(field).collect())))
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

    /// A schema of objects of the type `of`.
    pub fn object(of: Arc<ObjectType>) -> Self {
        // Size 0 in the estimate: upstream has no maximum for objects.
        Self::scalar(Type::Object(of), 0)
    }
}

/// True for reserved words, which cannot be names of fields.
fn is_word(name: &str) -> bool {
    KEYWORDS.contains(&name) || RESERVED.contains(&name)
}

/// The name in expressions of a property; `None` if expressions cannot name it.
pub fn escape(property: &str) -> Option<String> {
    if is_word(property) {
        return Some(format!("__{property}__"));
    }
    let first = property.bytes().next()?;
    // Identifiers cannot start with a digit, and there is no escape for it.
    if first.is_ascii_digit() {
        return None;
    }
    let mut out = String::with_capacity(property.len());
    let mut rest = property;
    while let Some(c) = rest.chars().next() {
        let (text, length) = match c {
            // Two underscores are the escape character, so they are escaped themselves.
            '_' if rest.starts_with("__") => ("__underscores__", 2),
            '.' => ("__dot__", 1),
            '-' => ("__dash__", 1),
            '/' => ("__slash__", 1),
            // One byte, since the character is ASCII.
            c if c.is_ascii_alphanumeric() || c == '_' => (&rest[..1], 1),
            // No escape exists for other characters: rules cannot refer to such properties.
            _ => return None,
        };
        out.push_str(text);
        rest = &rest[length..];
    }
    Some(out)
}

/// The key that an escaped name stands for; `None` if the name is not an escaped one.
pub(crate) fn unescape(name: &str) -> Option<String> {
    if !name.contains("__") {
        return None;
    }
    let (mut out, mut rest) = (String::with_capacity(name.len()), name);
    while let Some(start) = rest.find("__") {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let inner = &from[2..];
        let end = inner
            .find('_')
            // An escape needs at least one letter between its underscores.
            .filter(|end| *end > 0 && inner[*end..].starts_with("__"));
        let Some(end) = end else {
            // No escape starts here; one may start at the next underscore.
            out.push('_');
            rest = &from[1..];
            continue;
        };
        match &inner[..end] {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            // Reserved words are escaped as wholes only.
            word if is_word(word) && name.len() == end + 4 => out.push_str(word),
            _ => return None,
        }
        rest = &inner[end + 2..];
    }
    out.push_str(rest);
    // A name that means itself needs no second lookup.
    Some(out).filter(|out| out != name)
}

/// Keys of maps, which no schema limits.
static KEYS: Schema = Schema {
    ty: Type::String,
    max_size: 0,
    ..ANY
};

impl Schema {
    /// The schema of the elements of a list, or of the values of a map.
    pub(crate) fn item(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    /// The schema of the keys of a map.
    pub(crate) fn key(&self) -> Option<&Self> {
        // Keys of maps are strings whose length no schema limits.
        matches!(self.ty, Type::Map(_)).then(|| self.keys.as_deref().unwrap_or(&KEYS))
    }

    /// The schema of a field.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        match &self.ty {
            Type::Object(of) => of.field(name).map(|f| &f.schema),
            // Such values have one size by any name: `device.attributes['gpu.example.com'].memory`.
            Type::Map(of) if of.1 == Type::Any => self.item(),
            _ => None,
        }
    }
}

impl Type {
    /// The type of a variable that answers authorization checks; its values are made by `Val::authorizer`.
    pub const AUTHORIZER: Self = Self::Opaque("kubernetes.authorization.Authorizer");
    /// The type of a check of the requested resource; its values are made by `Val::resource_check`.
    pub const RESOURCE_CHECK: Self = Self::Opaque("kubernetes.authorization.ResourceCheck");

    /// The type of quantities.
    pub const QUANTITY: Self = Self::Opaque("kubernetes.Quantity");

    /// The name of the type of values, without its type parameters.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn | Self::Param(_) | Self::Error => "dyn",
            Self::Any => "google.protobuf.Any",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Object(of) => &of.name,
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Opaque(name) => name,
        }
    }

    /// The name as cel-go's `Type.String` has it, which messages about the type of a result show. Messages of
    /// the checker show shorter ones (`Display`).
    pub fn full_name(&self) -> String {
        match self {
            Self::List(of) => format!("list({})", of.full_name()),
            Self::Map(of) => format!("map({}, {})", of.0.full_name(), of.1.full_name()),
            Self::Optional(of) => format!("optional_type({})", of.full_name()),
            Self::Type(of) => match &**of {
                // The type of types.
                Self::Type(of) if **of == Self::Dyn => "type(type)".to_owned(),
                of => format!("type({})", of.full_name()),
            },
            other => other.runtime_name().to_owned(),
        }
    }

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
        self.is_dyn() || matches!(self, Self::Error)
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Dyn => "dyn",
            Self::Any => "any",
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
            Self::Type(of) => match &**of {
                // The type of types.
                Self::Type(of) if **of == Self::Dyn => "type(type)",
                of => return write!(f, "type({of})"),
            },
            Self::Opaque(name) => name,
            Self::Param(_) => "dyn",
            Self::Error => "!error!",
        };
        f.write_str(name)
    }
}
