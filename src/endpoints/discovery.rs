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
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use async_trait::async_trait;
use http::{HeaderMap, Method};

/// A discovery document at a path of its own (`/api`, `/apis/<group>`): GET only, as the router has it.
pub struct Document(pub Value);

#[async_trait]
impl UnprotectedHandler for Document {
    async fn serve(&self, req: Request, _: Authorized) -> Response {
        let query = Query::of(&req);
        if req.method() != Method::GET {
            let refusal = super::group_version::no_route(super::route::NoRoute::Method);
            return respond::status(&refusal, req.headers(), &query);
        }
        plain(&self.0, req.headers(), &query)
    }
}

/// A discovery document in what the client accepts.
pub fn plain(document: &Value, headers: &HeaderMap, query: &Query) -> Response {
    match negotiate(headers, query, Offer::Plain) {
        Ok(n) => respond::value(200, document, n, headers),
        Err(s) => respond::status(&s, headers, query),
    }
}
