//! `/apis` and `/apis/<group>`.

use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::Value;
use crate::endpoints::discovery::{AggregatedDiscovery, aggregated::Negotiating, plain, versions};
use crate::endpoints::options::Query;
use crate::request::{Request, UnprotectedHandler};
use crate::server::respond::{self, Answer};
use http::Method;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Root and handler of each.
pub(super) fn handlers(
    served: &[GroupVersion],
    aggregated: Arc<AggregatedDiscovery>,
) -> Vec<(String, Arc<dyn UnprotectedHandler>)> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for gv in served {
        groups.entry(&gv.group).or_default().push(&gv.version);
    }
    for all in groups.values_mut() {
        all.sort_by(|a, b| versions::compare_versions(b, a));
    }
    let entries = groups.iter().map(|(g, v)| versions::group_entry(g, v)).collect();
    let list = document("/apis".to_owned(), versions::api_group_list(entries));
    let negotiating = Negotiating {
        aggregated,
        plain: list,
    };
    let mut out: Vec<(String, Arc<dyn UnprotectedHandler>)> = vec![("/apis".to_owned(), Arc::new(negotiating))];
    for (group, all) in &groups {
        let root = format!("/apis/{group}");
        out.push((root.clone(), document(root, versions::api_group(group, all))));
    }
    out
}

/// Answers GET of `root` with a document, and knows nothing below.
fn document(root: String, document: Value) -> Arc<dyn UnprotectedHandler> {
    Arc::new(Answer(move |req: &Request| {
        if respond::path(req).trim_end_matches('/') != root {
            return respond::route_not_found(req.headers());
        }
        if req.method() != Method::GET {
            return respond::method_not_allowed(req.headers());
        }
        plain(&document, req.headers(), &Query::of(req))
    }))
}
