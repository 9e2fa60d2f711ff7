//! JSON patches: the type of their operations, and the escaping of keys in their paths.

use super::{Body::Strict, Declaration};
use crate::types::{Field, ObjectType, Schema, Type};
use crate::value::{Out, Val, no_overload};
use std::sync::{Arc, LazyLock};

pub(super) const FUNCTIONS: &[Declaration] = &[("jsonpatch.escapeKey", Strict(escape_key), &["(string) string"])];

/// An operation.
pub(crate) static TYPE: LazyLock<Arc<ObjectType>> = LazyLock::new(|| {
    let field = |name: &str| Field {
        name: name.into(),
        key: name.into(),
        schema: match name {
            "value" => Schema::any(),
            _ => Schema::scalar(Type::String, u64::MAX),
        },
    };
    Arc::new(ObjectType::new(
        "JSONPatch",
        ["op", "path", "from", "value"].map(field).into(),
    ))
});

fn escape_key<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        [Val::String(s)] => Ok(s.replace('~', "~0").replace('/', "~1").into()),
        _ => no_overload(),
    }
}
