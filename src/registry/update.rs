//! Update.
use super::store::{Store, Transform, Updated, WriteOptions};
use super::strategy::Context;
use crate::apimachinery::status::{Result, Status};
pub(super) async fn update(
    _s: &Store,
    _cx: &Context,
    _n: &str,
    _t: Transform<'_>,
    _u: bool,
    _w: &WriteOptions,
) -> Result<Updated> {
    Err(Status::raw_error("not yet"))
}
