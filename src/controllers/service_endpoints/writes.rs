//! [`Writes`]: a plan as it is sent. Slices are encoded where the plan is made, off the reactor if they are large.

use super::slices::{Counts, Plan};
use crate::apimachinery::object::ObjectView as _;
use crate::apimachinery::value::{Str, Value};
use crate::controllers::loopback::encode;
use bytes::Bytes;

/// The slices to write.
#[derive(Debug, Default)]
pub(super) struct Writes {
    pub(super) create: Vec<Bytes>,
    /// Each with its name.
    pub(super) update: Vec<(Str, Bytes)>,
    pub(super) delete: Vec<Str>,
    pub(super) counts: Counts,
    /// As [`Plan::missing`].
    pub(super) missing: Option<String>,
}

impl From<Plan> for Writes {
    fn from(plan: Plan) -> Self {
        let name = |slice: &Value| Str::from(slice.name());
        Self {
            create: plan.create.iter().map(encode).collect(),
            update: plan.update.iter().map(|s| (name(s), encode(s))).collect(),
            delete: plan.delete.iter().map(name).collect(),
            counts: plan.counts,
            missing: plan.missing,
        }
    }
}
