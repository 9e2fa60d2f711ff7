//! The `autoscaling/v1` Scale object of an object with replicas. [`managers`] translates field ownership
//! between the two.

pub(crate) mod managers;

use super::write::WriteOptions;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;

/// The `apiVersion` of a Scale.
pub(crate) const API_VERSION: &str = "autoscaling/v1";

/// Checks that a Scale with a name has the one in the path.
///
/// # Errors
/// 400 with upstream's message.
pub(crate) fn check_name(scale: &Value, name: &str) -> Result<()> {
    if scale.name().is_empty() || scale.name() == name {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({}) does not match the name on the URL ({name})",
        scale.name()
    )))
}

/// The options of the update of the parent that carries out `write`, an update of its Scale.
pub(crate) fn parent_options(write: &WriteOptions) -> WriteOptions {
    WriteOptions {
        subresource: "scale".to_owned(),
        uid: write.uid.clone(),
        ..WriteOptions::default()
    }
}

/// The Scale of `parent`. An empty selector is left out.
pub(crate) fn scale_of(parent: &Value, wanted: i64, observed: i64, selector: &str) -> Value {
    let mut metadata = Value::object();
    // Upstream copies just these.
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let value = parent.at(&["metadata", key]);
        if !value.is_null() {
            metadata.set(&[key], value.clone());
        }
    }
    let mut spec = Value::object();
    // Go omits a zero count.
    if wanted != 0 {
        spec.set(&["replicas"], wanted);
    }
    let mut status = Value::object();
    status.set(&["replicas"], observed);
    if !selector.is_empty() {
        status.set(&["selector"], selector);
    }
    let mut scale = crate::json!({"kind": "Scale", "apiVersion": API_VERSION});
    scale.set(&["metadata"], metadata);
    scale.set(&["spec"], spec);
    scale.set(&["status"], status);
    scale
}
