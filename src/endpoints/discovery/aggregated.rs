//! [`AggregatedDiscovery`]: the aggregated discovery document, combined from several sources, rendered on
//! demand and cached until it changes.

use super::Route;
use super::versions::compare_versions;
use crate::api::protobuf;
use crate::apimachinery::codec::{json, yaml};
use crate::apimachinery::gvk::GroupVersion;
use crate::apimachinery::value::{Map, Value};
use crate::endpoints::negotiate::Media;
use crate::request::accept::{accept_line, clauses};
use crate::request::{Authorized, Body, Request, Response, UnprotectedHandler};
use crate::server::container::WebService;
use crate::sync::Mutex;
use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use aws_lc_rs::digest;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY};
use http::{HeaderMap, StatusCode};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The contributor of a group version. If several contribute the same one, the document contains that of the
/// lowest source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source(pub u32);

#[allow(missing_docs, reason = "each constant is the source of its name")]
impl Source {
    pub(crate) const AGGREGATED: Self = Self(0);
    pub(crate) const BUILT_IN: Self = Self(100);
    pub(crate) const CUSTOM: Self = Self(200);
}

/// The sort position of a group version; higher values come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Priorities {
    /// Priority of the group; the highest among its versions counts.
    pub group: i64,
    /// Priority of the version within its group.
    pub version: i64,
}

/// A rendered document with its ETag.
#[derive(Debug)]
pub(crate) struct Rendered {
    /// Compact JSON followed by a newline.
    pub json: Bytes,
    /// Quoted upper-case hexadecimal SHA-512 of the JSON without the newline.
    pub etag: String,
}

/// The parts of one document: `/apis`, or `/api` with only the core group.
#[derive(Default)]
pub(crate) struct AggregatedDiscovery {
    parts: Mutex<BTreeMap<GroupVersion, BTreeMap<Source, Part>>>,
    rendered: ArcSwapOption<Rendered>,
    times: AtomicU64,
}

#[derive(Clone, PartialEq)]
struct Part {
    priorities: Priorities,
    /// `{version, resources, freshness}`
    document: Arc<Value>,
}

// The order of [`Source`] follows its number, so the first key of the inner map is the source that takes effect.
impl AggregatedDiscovery {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a source's part, of the form `{version, resources, freshness}` (see
    /// [`super::resources::aggregated`]). An equal part keeps the rendered document.
    pub(crate) fn set_group_version(&self, source: Source, gv: &GroupVersion, priorities: Priorities, document: Value) {
        let part = Part {
            priorities,
            document: Arc::new(document),
        };
        let mut parts = self.lock();
        let sources = parts.entry(gv.clone()).or_default();
        // Controllers republish unchanged parts on every resync, which must not render the document again.
        if sources.get(&source) != Some(&part) {
            sources.insert(source, part);
            self.rendered.store(None);
        }
    }

    /// Removes a source's part; the next source's becomes visible.
    pub(crate) fn remove_group_version(&self, source: Source, gv: &GroupVersion) {
        let mut parts = self.lock();
        let Some(sources) = parts.get_mut(gv) else {
            return;
        };
        if sources.remove(&source).is_some() {
            self.rendered.store(None);
        }
        // Definitions come and go; empty entries would add up.
        if sources.is_empty() {
            parts.remove(gv);
        }
    }

    /// The current document, rendered if necessary.
    pub(crate) fn rendered(&self) -> Arc<Rendered> {
        if let Some(r) = self.rendered.load_full() {
            return r;
        }
        // Rendered under the lock, so that a concurrent change cannot be overwritten by an outdated document.
        let parts = self.lock();
        // After a change, the first of several concurrent requests renders, and the others find its document.
        if let Some(r) = self.rendered.load_full() {
            return r;
        }
        let mut json = crate::api::json::to_vec(&document(&parts));
        let etag = etag(&json);
        json.push(b'\n');
        let rendered = Arc::new(Rendered {
            json: json.into(),
            etag,
        });
        self.rendered.store(Some(rendered.clone()));
        // A statistic: no other memory is published with it.
        self.times.fetch_add(1, Ordering::Relaxed);
        rendered
    }

    /// The number of times the document was rendered.
    pub(crate) fn times_rendered(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    /// Responds if any clause of `Accept` requests the aggregated form; `None` if the client wants the plain
    /// list.
    pub(crate) fn respond(&self, headers: &HeaderMap) -> Option<Response> {
        let media = wanted(headers)?;
        let rendered = self.rendered();
        // Upstream compares the header as a whole; lists of ETags never match.
        let known = headers.get(IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(rendered.etag.as_str());
        let mut response = match known {
            true => Response::new(Body::empty()),
            // Only the JSON is cached: hardly any client asks for another encoding of this document.
            false if media != Media::Json => {
                let document = json::decode(&rendered.json).unwrap_or_default();
                Response::new(match media {
                    Media::Protobuf => Body::full(protobuf::encode(&document).unwrap_or_default()),
                    _ => Body::full(yaml::to_vec(&document)),
                })
            }
            false => Response::new(Body::full(rendered.json.clone())),
        };
        let h = response.headers_mut();
        if !known {
            let content_type = match media {
                // Discovery documents are not offered in CBOR; `wanted` never returns it.
                Media::Json | Media::Cbor => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                Media::Yaml => "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                Media::Protobuf => {
                    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                }
            };
            h.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Ok(etag) = HeaderValue::from_str(&rendered.etag) {
            h.insert(ETAG, etag);
        }
        h.insert(VARY, HeaderValue::from_static("Accept"));
        // As upstream: every caller gets the same document.
        h.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
        if known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Some(response);
        }
        Some(crate::endpoints::respond::gzip::maybe(response, headers))
    }

    /// The route at `root` that serves this document, or `plain` to clients that do not request the
    /// aggregated form.
    pub(crate) fn route(self: Arc<Self>, root: &str, plain: Value) -> WebService {
        let route = Route::of(root, plain);
        let negotiating = Negotiating {
            aggregated: self,
            plain: route.handler.clone(),
        };
        WebService {
            root: root.to_owned(),
            handler: Arc::new(Route {
                handler: Arc::new(negotiating),
                ..route
            }),
        }
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, BTreeMap<GroupVersion, BTreeMap<Source, Part>>> {
        self.parts.lock()
    }
}

/// The quoted upper-case hexadecimal SHA-512.
pub(crate) fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", hash(bytes))
}

/// The upper-case hexadecimal SHA-512.
pub(crate) fn hash(bytes: &[u8]) -> String {
    upper_hex(&digest::digest(&digest::SHA512, bytes))
}

pub(crate) fn upper_hex(sum: &digest::Digest) -> String {
    sum.as_ref().iter().map(|b| format!("{b:02X}")).collect()
}

/// The encoding of the first clause that requests the aggregated form.
fn wanted(headers: &HeaderMap) -> Option<Media> {
    clauses(accept_line(headers)).into_iter().find_map(|c| {
        let asked = c.param("g") == Some("apidiscovery.k8s.io")
            && c.param("v") == Some("v2")
            && c.param("as") == Some("APIGroupDiscoveryList");
        let medias = [Media::Json, Media::Yaml, Media::Protobuf].into_iter();
        asked
            .then(|| medias.into_iter().find(|m| c.takes(m.content_type())))
            .flatten()
    })
}

fn document(parts: &BTreeMap<GroupVersion, BTreeMap<Source, Part>>) -> Value {
    // Only the lowest source of each group version takes effect.
    let mut groups: BTreeMap<&str, Vec<(&GroupVersion, &Part)>> = BTreeMap::new();
    for (gv, sources) in parts {
        if let Some((_, part)) = sources.first_key_value() {
            groups.entry(&gv.group).or_default().push((gv, part));
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    // The highest priority of any version counts for the group, as in upstream's discovery manager.
    groups.sort_by_key(|(name, versions)| {
        let highest = versions.iter().map(|(_, p)| p.priorities.group).max();
        (Reverse(highest), *name)
    });
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(name, mut versions)| {
            versions.sort_by(|(a, p), (b, q)| {
                let by_priority = q.priorities.version.cmp(&p.priorities.version);
                by_priority.then_with(|| compare_versions(&b.version, &a.version))
            });
            let mut metadata = Map::new();
            // Go omits the empty name of the core group.
            if !name.is_empty() {
                metadata.insert("name", name);
            }
            let mut m = Map::new();
            m.insert("metadata", metadata);
            let versions: Vec<Value> = versions.iter().map(|(_, p)| (*p.document).clone()).collect();
            m.insert("versions", versions);
            Value::Object(m)
        })
        .collect();
    let mut m = Map::new();
    m.insert("kind", "APIGroupDiscoveryList");
    m.insert("apiVersion", "apidiscovery.k8s.io/v2");
    m.insert("metadata", Map::new());
    m.insert("items", items);
    Value::Object(m)
}

/// Serves the aggregated document if requested, and otherwise the plain list.
pub(crate) struct Negotiating {
    pub aggregated: Arc<AggregatedDiscovery>,
    /// The handler of the plain list.
    pub plain: Arc<dyn UnprotectedHandler>,
}

#[async_trait]
impl UnprotectedHandler for Negotiating {
    async fn serve(self: Arc<Self>, req: Request, authorized: Authorized) -> Response {
        match self.aggregated.respond(req.headers()) {
            Some(response) => response,
            None => self.plain.clone().serve(req, authorized).await,
        }
    }
}

#[cfg(test)]
mod tests;
