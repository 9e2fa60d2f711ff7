//! Last good OpenAPI v3 documents of backends, served while a backend is unavailable. A document is downloaded when the
//! backend's index first contains it, and again when its URL there, which includes a hash, changes.

use super::key_of;
use crate::aggregator::apiservice::ApiService;
use crate::aggregator::documents::Published;
use crate::aggregator::internal::Answer;
use crate::aggregator::shelf::{Document, Shelf};
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
pub(super) struct LastDocuments {
    all: ArcSwap<OrdMap<Str, Arc<Last>>>,
    shelf: Shelf,
}

struct Last {
    /// The key in the index.
    key: Str,
    /// The URL in the index.
    url: String,
    document: CachedDocument,
}

impl LastDocuments {
    pub(super) fn new(shelf: Shelf) -> Self {
        Self {
            shelf,
            ..Self::default()
        }
    }

    /// Whether the document at this URL differs from the one stored here.
    pub(super) fn is_news(&self, name: &str, url: &str) -> bool {
        self.all.load().get(name).is_none_or(|last| last.url != url)
    }

    /// Stores a downloaded document, also on disk.
    ///
    /// # Errors
    /// A message for the log if the response contains no usable document.
    pub(super) async fn take(&self, of: &ApiService, url: String, answer: Answer) -> Result<(), String> {
        if answer.status != 200 {
            return Err(format!("{} on {url}", answer.status));
        }
        let parser = self.shelf.documents().clone();
        let parsed = self.shelf.documents().work(move || {
            let document = parser.parse(Published::OpenApiV3, &answer.body)?;
            Ok::<_, String>((CachedDocument::new(&document, Dialect::V3), document))
        });
        let (document, tree) = parsed.await.ok_or("the process is ending")??;
        let mut file = Map::new();
        file.insert("url", url.as_str());
        file.insert("document", tree);
        self.shelf.save(Document::OpenApiV3Last, of, Value::Object(file)).await;
        let key = key_of(of);
        self.set(of, Last { key, url, document });
        Ok(())
    }

    pub(super) async fn restore(&self, of: &ApiService) {
        let (shelf, s) = (self.shelf.clone(), of.clone());
        let kept = self.shelf.documents().work(move || {
            let file = shelf.load(Document::OpenApiV3Last, &s)?;
            Some(Last {
                key: key_of(&s),
                url: file.str_at(&["url"]).to_owned(),
                document: CachedDocument::new(file.get("document"), Dialect::V3),
            })
        });
        if let Some(last) = kept.await.flatten() {
            self.set(of, last);
        }
    }

    fn set(&self, of: &ApiService, last: Last) {
        let last = Arc::new(last);
        self.all.rcu(|all| all.update(of.name.clone(), last.clone()));
    }

    pub(super) fn remove(&self, name: &str) {
        self.shelf.remove(Document::OpenApiV3Last, name);
        self.all.rcu(|all| all.without(name));
    }

    /// The stored document for this key, with a `Warning` header that it may be outdated.
    pub(super) async fn answer(&self, name: &str, key: &str, headers: &HeaderMap) -> Option<Response> {
        let last = self.all.load().get(name).filter(|last| last.key == key).cloned()?;
        let mut answer = last.document.respond(headers).await;
        let text = format!("299 - \"the server behind {name} does not answer: this is what it said last\"");
        if let Ok(warning) = HeaderValue::try_from(text) {
            answer.headers_mut().insert(header::WARNING, warning);
        }
        Some(answer)
    }
}
