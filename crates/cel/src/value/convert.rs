//! Conversion between trees and values.

use super::{Dict, Key, List, Out, Text, Val, error};
use crate::time_value::{Stamp, duration_error, duration_text, parse_duration};
use crate::types::{DYN, Schema, Type, untyped};
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use base64::{DecodeError, Engine};
use torana_apimachinery::patch::go_type;
use torana_apimachinery::{Map, Value};

/// Maximum size of the tree of a computed value: the lengths of its strings, plus [`PART`] for each value in
/// it.
const MAX_TREE: usize = 16 << 20;
const PART: usize = 16;

/// Why a value cannot be written as a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Values that share their parts can be much larger as trees.
    #[error("the value is too large")]
    TooLarge,
    /// A map has a key that is not a string.
    #[error("map key {key} is of type {of}, not string")]
    Key {
        /// The key in its `Debug` form.
        key: String,
        /// The name of its type.
        of: String,
    },
    /// JSON has no such values: the name of the type.
    #[error("values of type {0} have no form in objects")]
    NoForm(String),
}

impl<'a> Val<'a> {
    /// The value of a tree under a schema.
    ///
    /// # Errors
    /// The value is not of the schema's type.
    pub fn of(v: &'a Value, schema: &'a Schema) -> Out<'a> {
        Ok(match (v, &schema.ty) {
            // Before the types: a nullable schema allows null for any of them.
            (Value::Null, _) if schema.nullable => Self::Null,
            (Value::Null, _) => return error("invalid data, got null for schema with nullable=false"),
            (Value::String(s), Type::String | Type::Dyn | Type::Any) => Self::String(Text::Borrowed(s)),
            (Value::String(s), Type::Duration) => match parse_duration(s) {
                Some(d) => Self::Duration(d),
                None => {
                    return error(format!("Invalid duration {s}: {}", duration_error(s)));
                }
            },
            // The formats `date` and `date-time` share the type, so both notations are tried.
            (Value::String(s), Type::Timestamp) => match Stamp::parse(s).or_else(|| Stamp::parse_date(s)) {
                Some(t) => Self::Timestamp(t),
                None => return error(format!("Invalid date-time formatted string '{s}'")),
            },
            (Value::String(s), Type::Bytes) => match URL_SAFE.decode(s.as_str()) {
                Ok(bytes) => Self::Bytes(bytes.into()),
                Err(why) => {
                    let at = match why {
                        DecodeError::InvalidByte(at, _) => at,
                        // Go names the start of the group that is not complete.
                        _ => s.len() / 4 * 4,
                    };
                    let what = "illegal base64 data at input byte";
                    return error(format!("Invalid byte formatted string {s}: {what} {at}"));
                }
            },
            (Value::Bool(b), Type::Bool | Type::Dyn | Type::Any) => Self::Bool(*b),
            (Value::Int(n), Type::Int | Type::Dyn) => Self::Int(*n),
            // Where the schema has no integers, Go's decoder makes doubles of all numbers.
            (Value::Int(n), Type::Double | Type::Any) => Self::Double(*n as f64),
            (Value::Float(f), Type::Double | Type::Dyn | Type::Any) => Self::Double(*f),
            (Value::Array(items), Type::List(_)) => Self::List(List::Tree(items, schema)),
            (Value::Array(items), of @ (Type::Dyn | Type::Any)) => Self::List(List::Tree(items, untyped(of))),
            (Value::Object(m), Type::Object(of)) => Self::Object(m, of),
            (Value::Object(m), Type::Map(_)) => Self::Map(Dict::Tree(m, schema.items.as_deref().unwrap_or(&DYN))),
            (Value::Object(m), of @ (Type::Dyn | Type::Any)) => Self::Map(Dict::Tree(m, untyped(of))),
            (v, ty) => return error(mismatch(v, ty)),
        })
    }

    /// The value as a tree. Policies use it for the objects and patches that their expressions construct.
    ///
    /// # Errors
    /// The value is too large, or a part of it has no form in JSON.
    pub fn to_tree(&self) -> Result<Value, TreeError> {
        let mut left = MAX_TREE;
        self.tree(&mut left)
    }

    /// Values share their parts, trees do not: the tree can be much larger than the memory of the value.
    fn tree(&self, left: &mut usize) -> Result<Value, TreeError> {
        charge(left, 0)?;
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Int(n) => Value::Int(*n),
            // Larger numbers only have a form as floats.
            Self::Uint(n) => match i64::try_from(*n) {
                Ok(n) => Value::Int(n),
                Err(_) => Value::Float(*n as f64),
            },
            Self::Double(f) if f.is_finite() => Value::Float(*f),
            Self::String(s) => {
                charge(left, s.len())?;
                Value::String((&**s).into())
            }
            Self::Bytes(b) => Value::String(STANDARD.encode(b).into()),
            Self::Duration(d) => Value::String(duration_text(*d).into()),
            Self::Timestamp(t) => Value::String(t.text().into()),
            // Charged before the copy is made.
            Self::List(List::Tree(items, _)) => {
                items.iter().try_for_each(|v| charge_tree(left, v))?;
                Value::Array(items.to_vec())
            }
            Self::List(List::Shared(items) | List::Typed(items, _)) => {
                Value::Array(items.iter().map(|v| v.tree(left)).collect::<Result<_, _>>()?)
            }
            Self::Map(Dict::Tree(map, _)) | Self::Object(map, _) => {
                charge_members(left, map)?;
                Value::Object((*map).clone())
            }
            Self::Map(Dict::Shared(map)) => {
                let mut pair = |(k, v): (&Key<'a>, &Self)| match k {
                    Key::String(k) => Ok(((&**k).into(), v.tree(left)?)),
                    k => Err(TreeError::Key {
                        key: format!("{:?}", k.val()),
                        of: k.val().type_name().to_owned(),
                    }),
                };
                Value::Object(Map::from_pairs(map.iter().map(&mut pair).collect::<Result<_, _>>()?))
            }
            Self::Record(record) => {
                let pairs = record.fields.iter().map(|(k, v)| Ok((k.clone(), v.tree(left)?)));
                Value::Object(Map::from_pairs(pairs.collect::<Result<_, TreeError>>()?))
            }
            Self::Optional(Some(v)) => v.tree(left)?,
            Self::Optional(None) => Value::Null,
            other => return Err(TreeError::NoForm(other.type_name().to_owned())),
        })
    }
}

/// The error of a value that does not have the schema's type (upstream's `UnstructuredToVal`, which formats the type
/// that Go's decoder gave it).
fn mismatch(v: &Value, ty: &Type) -> String {
    let wanted = match ty {
        Type::Object(_) | Type::Map(_) => "a map for the provided schema with type=object".to_owned(),
        Type::List(_) => "an array for the provided schema with type=array".to_owned(),
        // Formats of strings have types of their own.
        Type::String | Type::Duration | Type::Timestamp | Type::Bytes => format!("string, got {}", go_type(v)),
        Type::Double => format!("float, got {}", go_type(v)),
        Type::Int => format!("int, got {}", go_type(v)),
        Type::Bool => format!("bool, got {}", go_type(v)),
        other => format!("a value of type {other}"),
    };
    format!("invalid data, expected {wanted}")
}

fn charge(left: &mut usize, length: usize) -> Result<(), TreeError> {
    *left = left
        .checked_sub(length.saturating_add(PART))
        .ok_or(TreeError::TooLarge)?;
    Ok(())
}

/// Charges for a copy of a part of the input.
fn charge_tree(left: &mut usize, v: &Value) -> Result<(), TreeError> {
    charge(left, v.as_str().map_or(0, str::len))?;
    match v {
        Value::Array(items) => items.iter().try_for_each(|v| charge_tree(left, v)),
        Value::Object(map) => charge_members(left, map),
        _ => Ok(()),
    }
}

fn charge_members(left: &mut usize, map: &Map) -> Result<(), TreeError> {
    map.iter().try_for_each(|(k, v)| {
        charge(left, k.len())?;
        charge_tree(left, v)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ANY;
    use torana_apimachinery::json;

    #[test]
    fn values_of_wrong_types_are_named_as_go_names_them() {
        let list = Type::List(Type::Int.into());
        let map = Type::Map((Type::String, Type::Int).into());
        for (ty, v, message) in [
            (Type::String, json!([1]), "expected string, got []interface {}"),
            (Type::Duration, json!(1), "expected string, got int64"),
            (Type::Int, json!(1.5), "expected int, got float64"),
            (Type::Double, json!("x"), "expected float, got string"),
            (Type::Bool, json!({}), "expected bool, got map[string]interface {}"),
            (
                list,
                json!(true),
                "expected an array for the provided schema with type=array",
            ),
            (
                map,
                json!("x"),
                "expected a map for the provided schema with type=object",
            ),
        ] {
            let schema = Schema { ty, ..ANY };
            let error = Val::of(&v, &schema).err().map(|e| e.to_string());
            assert_eq!(error, Some(format!("invalid data, {message}")));
        }
    }
}
