//! Limits on the documents that backends publish: their size, the members that are parsed, and where parsing
//! runs.
//!
//! Documents are untrusted input. They are read up to a size limit and parsed by a schema that skips unknown
//! members; values are counted; and parsing runs on the blocking pool, a few documents at a time. Copies from
//! the disk cache are treated the same way. Entry point: [`Documents::parse`].

pub(crate) mod bounds;
mod error;
mod kind;
mod limits;
mod pruning_parser;
mod shapes;

pub(crate) use error::{CollectError, Rejected};
pub(crate) use kind::DocumentKind;

use super::own_requests::LargeDocuments;
use crate::apimachinery::value::Value;
use crate::tasks::off_thread;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Estimated memory of processing a document, in bytes. The compute pool accounts for it if a request
/// triggers the work.
const MEMORY: usize = 1 << 20;

/// Size limits of backends' documents, in bytes on the wire.
#[derive(Clone, Copy, Debug)]
pub struct DocumentLimits {
    /// `--aggregator-max-discovery-bytes`: discovery documents and the OpenAPI v3 index.
    pub discovery: usize,
    /// `--aggregator-max-openapi-bytes`: OpenAPI documents, v2 or v3.
    pub openapi: usize,
}

impl Default for DocumentLimits {
    fn default() -> Self {
        Self {
            discovery: 4 << 20,
            openapi: 32 << 20,
        }
    }
}

/// Documents parsed at a time. A parsed tree is several times as large as its text.
const PARSERS: usize = 2;

/// Size limits, and permits for holding and parsing documents. Clones share the permits.
#[derive(Clone)]
pub struct Documents {
    limits: DocumentLimits,
    large: LargeDocuments,
    parsing: Arc<Semaphore>,
}

impl Default for Documents {
    fn default() -> Self {
        Self::new(DocumentLimits::default())
    }
}

impl Documents {
    /// Refuses documents beyond `limits`.
    pub fn new(limits: DocumentLimits) -> Self {
        Self {
            limits,
            large: LargeDocuments::default(),
            parsing: Arc::new(Semaphore::new(PARSERS)),
        }
    }

    /// Permits for large documents in memory.
    pub fn large(&self) -> &LargeDocuments {
        &self.large
    }

    /// Size limit of a document, in bytes.
    pub fn max_bytes(&self, what: DocumentKind) -> usize {
        match what {
            DocumentKind::Discovery | DocumentKind::OpenApiV3 => self.limits.discovery,
            DocumentKind::OpenApiV2 | DocumentKind::OpenApiV3Last => self.limits.openapi,
        }
    }

    /// Runs work on a document on the blocking pool, a few at a time. `None` during shutdown.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop work that has begun.
    pub async fn run_blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let place = self.parsing.clone().acquire_owned().await.ok()?;
        off_thread(MEMORY, move || {
            // Held by the work, not by the future: work that has begun still needs memory when its caller has
            // gone.
            let _place = place;
            work()
        })
        .await
    }

    /// Parses a document as published by a backend.
    ///
    /// # Errors
    /// The document is too large or invalid.
    pub fn parse(&self, what: PublishedKind, bytes: &[u8]) -> Result<Value, Rejected> {
        // A parsed value takes more memory than its shortest text. These ratios bound the tree; the size
        // bounds only the text.
        let (shape, max_bytes, most_values) = match what {
            PublishedKind::Groups => (&shapes::GROUPS, self.limits.discovery, self.limits.discovery / 8),
            PublishedKind::Resources => (&shapes::RESOURCES, self.limits.discovery, self.limits.discovery / 8),
            PublishedKind::OpenApiV2 => (&shapes::SWAGGER, self.limits.openapi, self.limits.openapi / 32),
            PublishedKind::OpenApiV3Index => (&shapes::INDEX, self.limits.discovery, self.limits.discovery / 8),
            PublishedKind::OpenApiV3 => (&shapes::OPENAPI, self.limits.openapi, self.limits.openapi / 32),
        };
        check_size(bytes, max_bytes)?;
        pruning_parser::parse(bytes, shape, most_values)
    }

    /// Parses a file of the disk cache: a document with its metadata.
    ///
    /// # Errors
    /// As [`Documents::parse`].
    pub fn parse_cached(&self, what: DocumentKind, bytes: &[u8]) -> Result<Value, Rejected> {
        let shape = match what {
            DocumentKind::Discovery => &shapes::CACHED_DISCOVERY,
            DocumentKind::OpenApiV2 => &shapes::CACHED_SWAGGER,
            DocumentKind::OpenApiV3 => &shapes::CACHED_INDEX,
            DocumentKind::OpenApiV3Last => &shapes::CACHED_OPENAPI,
        };
        let most_values = match what {
            DocumentKind::Discovery | DocumentKind::OpenApiV3 => self.limits.discovery / 8,
            DocumentKind::OpenApiV2 | DocumentKind::OpenApiV3Last => self.limits.openapi / 32,
        };
        check_size(bytes, self.max_cached_bytes(what))?;
        pruning_parser::parse(bytes, shape, most_values)
    }

    /// Size limit of a cache file. Twice the limit of the document, since we serialise differently, plus
    /// metadata.
    pub fn max_cached_bytes(&self, what: DocumentKind) -> usize {
        self.max_bytes(what).saturating_mul(2).saturating_add(64 << 10)
    }
}

/// Kinds of documents as published by backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedKind {
    /// An APIGroupDiscoveryList.
    Groups,
    /// An APIResourceList.
    Resources,
    /// An OpenAPI v2 document.
    OpenApiV2,
    /// The OpenAPI v3 index.
    OpenApiV3Index,
    /// An OpenAPI v3 document.
    OpenApiV3,
}

fn check_size(bytes: &[u8], most: usize) -> Result<(), Rejected> {
    match bytes.len() > most {
        true => Err(Rejected::TooLarge(most)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn unknown_members_are_dropped() {
        let of = Documents::default();
        let unknown = format!(r#""junk":[{}]"#, vec!["{\"a\":[1]}"; 100_000].join(","));
        let text = format!(
            r#"{{{unknown},"items":[{{"metadata":{{"name":"g",{unknown}}},"versions":[{{"version":"v1",{unknown},
            "resources":[{{"resource":"things","verbs":["get"],"responseKind":{{"kind":"Thing",{unknown}}}}}]}}]}}]}}"#
        );
        let parsed = of.parse(PublishedKind::Groups, text.as_bytes()).unwrap();
        assert_eq!(
            parsed,
            json!({"items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": [
                {"resource": "things", "verbs": ["get"], "responseKind": {"kind": "Thing"}}]}]}]})
        );
    }

    #[test]
    fn known_members_of_openapi_are_kept() {
        let of = Documents::default();
        let document = json!({"swagger": "2.0", "info": {"title": "t", "version": "1"},
            "paths": {"/apis/g/v1/": {"get": {"operationId": "o", "x-kubernetes-action": "list",
                "parameters": [{"name": "p", "in": "query", "type": "string", "uniqueItems": true}],
                "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Thing"}}}}}},
            "definitions": {"Thing": {"type": "object", "required": ["a"],
                "properties": {"a": {"type": "array", "items": {"type": "string", "enum": ["x", 1, null]}},
                    "b": {"additionalProperties": {"allOf": [{"default": {"any": ["thing"]}}]}}},
                "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Thing"}]}}});
        let text = crate::apimachinery::codec::json::to_vec(&document);
        assert_eq!(of.parse(PublishedKind::OpenApiV2, &text).unwrap(), document);
        let v3 = json!({"openapi": "3.0.0", "paths": {"/apis/g/v1/": {"get": {"requestBody": {"content":
            {"*/*": {"schema": {"oneOf": [{"nullable": true}, {"not": {"type": "string"}}]}}}}}}},
            "components": {"schemas": {"T": {"properties": {"a": {"x-kubernetes-list-type": "atomic"}}}}}});
        let text = crate::apimachinery::codec::json::to_vec(&v3);
        assert_eq!(of.parse(PublishedKind::OpenApiV3, &text).unwrap(), v3);
    }

    #[test]
    fn documents_are_rejected_by_size_number_of_values_and_depth() {
        let of = Documents::new(DocumentLimits {
            discovery: 1 << 20,
            openapi: 1 << 20,
        });
        let many = format!(r#"{{"definitions":{{"a":{{"enum":[{}0]}}}}}}"#, "0,".repeat(100_000));
        let why = of
            .parse(PublishedKind::OpenApiV2, many.as_bytes())
            .unwrap_err()
            .to_string();
        assert_eq!(why, "the document has more than 32768 values");
        let large = format!(r#"{{"junk":"{}"}}"#, "x".repeat(1 << 20));
        let why = of
            .parse(PublishedKind::OpenApiV2, large.as_bytes())
            .unwrap_err()
            .to_string();
        assert_eq!(why, "the document is larger than 1048576 bytes");
        let names: String = (0..20_001).map(|i| format!("\"d{i}\":{{}},")).collect();
        let why = Documents::default().parse(
            PublishedKind::OpenApiV2,
            format!(r#"{{"definitions":{{{names}"z":{{}}}}}}"#).as_bytes(),
        );
        assert_eq!(
            why.unwrap_err().to_string(),
            "the document has more than 20000 definitions"
        );
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let text = format!(r#"{{"junk":{deep},"info":{deep}}}"#);
        let why = of
            .parse(PublishedKind::OpenApiV2, text.as_bytes())
            .unwrap_err()
            .to_string();
        assert_eq!(why, "the document nests deeper than 200 levels");
    }
}
