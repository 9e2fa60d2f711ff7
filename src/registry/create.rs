//! Create.
use super::store::{Store, WriteOptions, Written};
use super::strategy::Context;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
pub(super) async fn create(_s: &Store, _cx: &Context, _o: Value, _w: &WriteOptions) -> Result<Written> {
    Err(Status::raw_error("not yet"))
}
