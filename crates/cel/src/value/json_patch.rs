//! The operations of JSON patches, which are [`Record`]s of one type.

use super::{Dict, Fail, List, Out, Record, Val, error};
use crate::types::{Field, ObjectType, Schema, Type};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use torana_apimachinery::Str;

/// The type `JSONPatch`: one operation of a patch.
pub(crate) static TYPE: LazyLock<Arc<ObjectType>> = LazyLock::new(|| {
    let field = |name: &str| Field {
        name: name.into(),
        key: name.into(),
        schema: match name {
            "value" => Schema::any(),
            _ => Schema::scalar(Type::String, u64::MAX),
        },
    };
    let fields = ["op", "path", "from", "value"].map(field);
    Arc::new(ObjectType::with_untyped("JSONPatch", fields.into()))
});

/// Sets a field of an operation. Texts are empty unless set, so that an empty one is left out.
pub(crate) fn set<'a>(fields: &mut BTreeMap<Str, Val<'a>>, name: &str, value: Val<'a>) -> Result<(), Fail> {
    match (name, &value) {
        ("value", _) => drop(fields.insert(Str::new(name), value)),
        // An empty text is the same as an unset one.
        ("op" | "path" | "from", Val::String(text)) if text.is_empty() => drop(fields.remove(name)),
        ("op" | "path" | "from", Val::String(_)) => drop(fields.insert(Str::new(name), value)),
        ("op" | "path" | "from", other) => {
            let given = go_type(other);
            return error(format!("unexpected type {given} for JSONPatchType '{name}' field"));
        }
        _ => return error(format!("unexpected JSONPatchType field: {name}")),
    }
    Ok(())
}

/// A field of an operation that is not set.
fn unset<'a>(name: &str) -> Out<'a> {
    match name {
        "value" => Ok(Val::Null),
        "op" | "path" | "from" => Ok("".into()),
        _ => error(format!("unsupported indexer: {name}")),
    }
}

/// The Go type of cel-go's representation of a value.
fn go_type<'v>(v: &'v Val<'_>) -> &'v str {
    match v {
        Val::Null => "structpb.NullValue",
        Val::Bool(_) => "bool",
        Val::Int(_) => "int64",
        Val::Uint(_) => "uint64",
        Val::Double(_) => "float64",
        Val::Bytes(_) => "[]uint8",
        Val::Duration(_) => "time.Duration",
        Val::Timestamp(_) => "time.Time",
        Val::List(List::Tree(..)) => "[]interface {}",
        Val::List(_) => "[]ref.Val",
        Val::Map(Dict::Tree(..)) => "map[string]interface {}",
        Val::Map(_) => "map[ref.Val]ref.Val",
        Val::Quantity(..) => "*resource.Quantity",
        // By address: a declared type may have the same name.
        Val::Record(of) if Arc::ptr_eq(&of.of, &TYPE) => "*mutation.JSONPatchVal",
        other => other.type_name(),
    }
}

impl<'a> Record<'a> {
    /// A field. Operations of patches have those that are not set, too.
    pub(crate) fn field(&self, name: &str) -> Option<Out<'a>> {
        let set = self.fields.get(name).cloned().map(Ok);
        let is_patch = Arc::ptr_eq(&self.of, &TYPE);
        set.or_else(|| is_patch.then(|| unset(name)))
    }
}
