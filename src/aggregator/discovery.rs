//! Discovery of aggregated groups: [`GroupListHandler`] and [`GroupHandler`] serve the plain documents,
//! built from APIService objects; [`Collector`] fetches backends' documents for the aggregated one,
//! which `endpoints::discovery` serves.

mod collect;
mod convert;
mod groups;
#[cfg(test)]
mod tests;

pub(crate) use collect::Collector;
pub use convert::{from_resource_list, versions};
pub(crate) use groups::{GroupHandler, GroupListHandler};
