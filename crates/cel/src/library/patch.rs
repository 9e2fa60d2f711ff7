//! JSON patches: the escaping of keys in the paths of their operations.

use super::{Body::Strict, Declaration};
use crate::value::{Out, Val, no_overload};

pub(super) const FUNCTIONS: &[Declaration] = &[("jsonpatch.escapeKey", Strict(escape_key), &["(string) string"])];

fn escape_key<'a>(args: &mut [Val<'a>]) -> Out<'a> {
    match args {
        // `~` first: the escape of a slash contains one.
        [Val::String(s)] => Ok(s.replace('~', "~0").replace('/', "~1").into()),
        _ => no_overload(),
    }
}
