//! Delete.
use super::store::{DeleteOptions, Deleted, Store};
use super::strategy::Context;
use crate::apimachinery::status::{Result, Status};
pub(super) async fn delete(_s: &Store, _cx: &Context, _n: &str, _o: &DeleteOptions) -> Result<Deleted> {
    Err(Status::raw_error("not yet"))
}
