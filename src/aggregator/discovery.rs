//! Discovery: the plain group documents from APIService objects, and the aggregated document's remote parts.

mod collect;
mod convert;
mod groups;
#[cfg(test)]
mod tests;

pub use collect::Collector;
pub use convert::{from_resource_list, versions};
pub use groups::{GroupHandler, GroupListHandler};
