//! Last good OpenAPI v3 documents of backends, served while a backend is unavailable. A document is
//! downloaded when the backend's index first contains it, and again when its URL there, which includes a
//! hash, changes.

use super::key_of;
use crate::aggregator::apiservice::ApiService;
use crate::aggregator::disk_cache::DiskCache;
use crate::aggregator::documents::DocumentKind;
use crate::aggregator::documents::{CollectError, PublishedKind, Rejected};
use crate::aggregator::own_requests::FetchedDocument;
use crate::api::openapi::Dialect;
use crate::apimachinery::value::{Map, Str, Value};
use crate::endpoints::openapi::cached::CachedDocument;
use crate::request::Response;
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, header};
use imbl::OrdMap;
use std::sync::Arc;

/// Last good documents, by APIService name.
#[derive(Default)]
pub(super) struct LastGoodDocuments {
    all: ArcSwap<OrdMap<Str, Arc<LastGood>>>,
    disk_cache: DiskCache,
}

struct LastGood {
    /// The key in the index.
    key: Str,
    /// The URL in the index.
    url: String,
    document: CachedDocument,
}

impl LastGoodDocuments {
    pub(super) fn new(disk_cache: DiskCache) -> Self {
        Self {
            disk_cache,
            ..Self::default()
        }
    }

    /// Whether the document at this URL differs from the one stored here.
    pub(super) fn is_new(&self, name: &str, url: &str) -> bool {
        self.all.load().get(name).is_none_or(|last| last.url != url)
    }

    /// Stores a downloaded document, also on disk.
    ///
    /// # Errors
    /// A message for the log if the response contains no usable document.
    pub(super) async fn take(
        &self,
        of: &ApiService,
        url: String,
        response: FetchedDocument,
    ) -> Result<(), CollectError> {
        if response.status != 200 {
            return Err(CollectError::Status {
                status: response.status,
                path: url,
            });
        }
        let parser = self.disk_cache.documents().clone();
        // Rendered on the blocking pool, too: it takes as long as parsing.
        let parsed = self.disk_cache.documents().run_blocking(move || {
            let document = parser.parse(PublishedKind::OpenApiV3, &response.body)?;
            Ok::<_, Rejected>((CachedDocument::new(&document, Dialect::V3), document))
        });
        let (document, tree) = parsed.await.ok_or(CollectError::ShuttingDown)??;
        let mut file = Map::new();
        file.insert("url", url.as_str());
        file.insert("document", tree);
        self.disk_cache
            .save(DocumentKind::OpenApiV3Last, of, Value::Object(file))
            .await;
        let key = key_of(of);
        self.set(of, LastGood { key, url, document });
        Ok(())
    }

    pub(super) async fn restore(&self, of: &ApiService) {
        let (disk_cache, s) = (self.disk_cache.clone(), of.clone());
        let kept = self.disk_cache.documents().run_blocking(move || {
            let file = disk_cache.load(DocumentKind::OpenApiV3Last, &s)?;
            Some(LastGood {
                key: key_of(&s),
                url: file.str_at(&["url"]).to_owned(),
                document: CachedDocument::new(file.get("document"), Dialect::V3),
            })
        });
        if let Some(last) = kept.await.flatten() {
            self.set(of, last);
        }
    }

    fn set(&self, of: &ApiService, last: LastGood) {
        let last = Arc::new(last);
        // The closure may run again after a concurrent update, hence the clone.
        self.all.rcu(|all| all.update(of.name.clone(), last.clone()));
    }

    pub(super) fn remove(&self, name: &str) {
        self.disk_cache.remove(DocumentKind::OpenApiV3Last, name);
        self.all.rcu(|all| all.without(name));
    }

    /// The stored document for this key, with a `Warning` header that it may be outdated.
    pub(super) async fn respond(&self, name: &str, key: &str, headers: &HeaderMap) -> Option<Response> {
        // The backend may publish several keys; only that of its own version is stored.
        let last = self.all.load().get(name).filter(|last| last.key == key).cloned()?;
        let mut response = last.document.respond(headers).await;
        let text = format!("299 - \"the server behind {name} does not answer: this document may be outdated\"");
        if let Ok(warning) = HeaderValue::try_from(text) {
            response.headers_mut().insert(header::WARNING, warning);
        }
        Some(response)
    }
}
