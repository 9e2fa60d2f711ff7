//! Discovery: what is served, as lists for clients.

pub mod aggregated;
pub mod resources;
pub mod versions;

pub use aggregated::AggregatedDiscovery;
pub use versions::{api_group, api_group_list, compare_versions, group_entry};

use super::negotiate::{Offer, negotiate};
use super::options::Query;
use super::respond;
use crate::apimachinery::value::Value;
use crate::request::Response;
use http::HeaderMap;

/// A discovery document in what the client accepts.
pub fn plain(document: &Value, headers: &HeaderMap, query: &Query) -> Response {
    match negotiate(headers, query, Offer::Plain) {
        Ok(n) => respond::value(200, document, n, headers),
        Err(s) => respond::status(&s, headers, query),
    }
}
