//! The strategy `None`: only the version changes.

use crate::apimachinery::value::Value;
use crate::registry::converting::{Conversion, Converting, KindVersion};

/// Changes only `apiVersion`. The schema of the target version prunes unknown fields.
pub(super) struct OnlyVersion;

impl Conversion for OnlyVersion {
    fn convert(&self, mut objects: Vec<Value>, to: &KindVersion) -> Converting {
        for object in &mut objects {
            // Cheap: versions are short enough to be stored inline.
            object.set(&["apiVersion"], to.api_version.clone());
        }
        Converting::Done(Ok(objects))
    }

    fn changes_only_version(&self) -> bool {
        true
    }
}
