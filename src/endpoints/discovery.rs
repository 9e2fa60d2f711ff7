//! Discovery: lists of the groups, versions and resources served.
//!
//! [`AggregatedDiscovery`] combines the contributions of several servers; [`resources`] and [`versions`]
//! build the documents of one server. [`Route`] serves a document.

pub(crate) mod aggregated;
pub(crate) mod resources;
pub(crate) mod versions;

pub(crate) use aggregated::AggregatedDiscovery;
pub(crate) use versions::{api_group, api_group_list, compare_versions, group_entry};

use super::negotiate::{Codecs, Offer, negotiate, router_check};
use super::options::Query;
use super::respond;
use super::route::{NoRoute, no_route};
use crate::apimachinery::status::Status;
use crate::apimachinery::value::Value;
use crate::request::{Authorized, Request, Response, UnprotectedHandler};
use crate::server::respond::{FnHandler, path};
use async_trait::async_trait;
use http::{HeaderMap, Method};
use std::sync::Arc;

/// Serves GET of exactly `root`, in a media type known to the router. Paths below it are routed elsewhere.
pub(crate) struct Route {
    /// The path without a trailing slash: `/api` or `/apis/<group>`.
    pub root: String,
    pub handler: Arc<dyn UnprotectedHandler>,
}

impl Route {
    /// A route for a fixed document.
    pub(crate) fn of(root: &str, document: Value) -> Self {
        Self {
            root: root.to_owned(),
            handler: Arc::new(FnHandler(move |req: &Request| {
                plain(&document, req.headers(), &Query::of(req))
            })),
        }
    }

    fn refusal(&self, req: &Request) -> Option<Status> {
        // The claim covers everything below the root, so this route must refuse what it does not serve.
        if path(req).trim_end_matches('/') != self.root {
            return Some(no_route(NoRoute::Path));
        }
        if req.method() != Method::GET {
            return Some(no_route(NoRoute::Method));
        }
        router_check(req.headers(), false, Codecs::default()).err()
    }
}

#[async_trait]
impl UnprotectedHandler for Route {
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response {
        match self.refusal(&req) {
            Some(refusal) => respond::status(&refusal, req.headers(), &Query::of(&req)),
            None => self.handler.clone().serve(req, authorized).await,
        }
    }
}

/// Encodes a discovery document in a media type the client accepts.
pub(crate) fn plain(document: &Value, headers: &HeaderMap, query: &Query) -> Response {
    match negotiate(headers, query, Offer::Plain) {
        Ok(n) => respond::value(200, document, n, headers),
        Err(s) => respond::status(&s, headers, query),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Body, UserInfo};

    async fn ask(method: &str, path: &str, accept: &str) -> (u16, String) {
        let aggregated = Arc::new(AggregatedDiscovery::new());
        let service = aggregated.route("/api", crate::json!({"kind": "APIVersions"}));
        let req = http::Request::builder()
            .method(method)
            .uri(path)
            .header("accept", accept);
        let authorized = Authorized::for_test(UserInfo::anonymous());
        let response = service
            .handler
            .serve(req.body(Body::empty()).unwrap(), authorized)
            .await;
        let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        (response.status().as_u16(), content_type)
    }

    #[tokio::test]
    async fn root_routes_check_path_method_and_media_type() {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let json = "application/json";
        for (method, path, accept, want) in [
            ("GET", "/api", aggregated, (200, aggregated)),
            ("GET", "/api/", json, (200, json)),
            ("GET", "/api/v2", aggregated, (404, json)),
            ("HEAD", "/api", aggregated, (405, json)),
            ("POST", "/api", aggregated, (405, json)),
            ("GET", "/api", "application/*", (406, json)),
            ("GET", "/api", "text/html", (406, json)),
        ] {
            let (code, content_type) = ask(method, path, accept).await;
            assert_eq!((code, content_type.as_str()), want, "{method} {path} {accept}");
        }
    }
}
