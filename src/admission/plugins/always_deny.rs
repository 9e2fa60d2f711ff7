//! AlwaysDeny: rejects every write. As upstream's `plugin/pkg/admission/deny`.

use crate::admission::{Admission, Attributes, forbidden};
use crate::apimachinery::status::Result;
use crate::apimachinery::value::Value;
use async_trait::async_trait;

pub(crate) struct AlwaysDeny;

#[async_trait]
impl Admission for AlwaysDeny {
    async fn mutate(&self, attributes: &Attributes, object: &mut Value) -> Result<()> {
        let why = "admission control is denying all modifications";
        Err(forbidden(attributes, object, why))
    }
}
