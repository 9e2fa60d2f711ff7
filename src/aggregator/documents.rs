//! Documents that backends publish about themselves: how large they may be, what of them is kept, and where they are parsed.
//!
//! A document is somebody else's text. It is read up to a limit of bytes, parsed by the members that are known (others are
//! skipped, not built), counted, and parsed off the threads that serve, few at a time. What was kept on disk by a process
//! before this one is treated alike.

pub mod bounds;
mod shapes;
mod sieve;

use super::internal::LargeDocuments;
use super::shelf::Document;
use crate::apimachinery::value::Value;
use crate::endpoints::openapi::kept::MEMORY;
use crate::tasks::off_thread;
use std::sync::Arc;
use tokio::sync::Semaphore;

pub use sieve::Shape;

/// How large documents of backends may be, in bytes as they are on the wire.
#[derive(Clone, Copy, Debug)]
pub struct DocumentLimits {
    /// `--aggregator-max-discovery-bytes`: discovery, and the index of OpenAPI v3.
    pub discovery: usize,
    /// `--aggregator-max-openapi-bytes`: a document of OpenAPI, v2 or v3.
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

/// Documents parsed at once. A tree is a few times as large as its text.
const PARSERS: usize = 2;

/// The limits, and the places of those who hold or parse documents. Clones share the places.
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
    /// Within these limits.
    pub fn new(limits: DocumentLimits) -> Self {
        Self {
            limits,
            large: LargeDocuments::default(),
            parsing: Arc::new(Semaphore::new(PARSERS)),
        }
    }

    /// Places for large documents on their way here.
    pub fn large(&self) -> &LargeDocuments {
        &self.large
    }

    /// Most bytes of a document.
    pub fn most_bytes(&self, what: Document) -> usize {
        match what {
            Document::Discovery | Document::OpenApiV3 => self.limits.discovery,
            Document::OpenApiV2 | Document::OpenApiV3Last => self.limits.openapi,
        }
    }

    /// Runs work on a document where it holds nobody up, few at a time. `None`: the process is ending.
    ///
    /// # Cancel safety
    /// When dropped, work that has begun goes on to its end.
    pub async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let place = self.parsing.clone().acquire_owned().await.ok()?;
        off_thread(MEMORY, move || {
            let _place = place;
            work()
        })
        .await
    }

    /// A document in the form in which a backend answers with it.
    ///
    /// # Errors
    /// It is too large, or cannot be read.
    pub fn parse(&self, what: Published, bytes: &[u8]) -> Result<Value, String> {
        let (shape, most_bytes, most_values) = match what {
            Published::Groups => (&shapes::GROUPS, self.limits.discovery, self.limits.discovery / 8),
            Published::Resources => (&shapes::RESOURCES, self.limits.discovery, self.limits.discovery / 8),
            Published::OpenApiV2 => (&shapes::SWAGGER, self.limits.openapi, self.limits.openapi / 32),
            Published::OpenApiV3Index => (&shapes::INDEX, self.limits.discovery, self.limits.discovery / 8),
            Published::OpenApiV3 => (&shapes::OPENAPI, self.limits.openapi, self.limits.openapi / 32),
        };
        within(bytes, most_bytes)?;
        sieve::parse(bytes, shape, most_values)
    }

    /// A document in the form in which it is kept, with what is kept beside it.
    ///
    /// # Errors
    /// As [`Documents::parse`].
    pub fn parse_kept(&self, what: Document, bytes: &[u8]) -> Result<Value, String> {
        let shape = match what {
            Document::Discovery => &shapes::KEPT_DISCOVERY,
            Document::OpenApiV2 => &shapes::KEPT_SWAGGER,
            Document::OpenApiV3 => &shapes::KEPT_INDEX,
            Document::OpenApiV3Last => &shapes::KEPT_OPENAPI,
        };
        let most_values = match what {
            Document::Discovery | Document::OpenApiV3 => self.limits.discovery / 8,
            Document::OpenApiV2 | Document::OpenApiV3Last => self.limits.openapi / 32,
        };
        within(bytes, self.most_kept(what))?;
        sieve::parse(bytes, shape, most_values)
    }

    /// Most bytes of a file: the document, which is written as we write it, and what is kept beside it.
    pub fn most_kept(&self, what: Document) -> usize {
        self.most_bytes(what).saturating_mul(2).saturating_add(64 << 10)
    }
}

/// What a backend answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// An APIGroupDiscoveryList.
    Groups,
    /// An APIResourceList.
    Resources,
    /// OpenAPI v2.
    OpenApiV2,
    /// The index of OpenAPI v3.
    OpenApiV3Index,
    /// A document of OpenAPI v3.
    OpenApiV3,
}

fn within(bytes: &[u8], most: usize) -> Result<(), String> {
    match bytes.len() > most {
        true => Err(format!("the document is larger than {most} bytes")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn what_is_not_known_of_a_document_is_not_kept() {
        let of = Documents::default();
        let unknown = format!(r#""junk":[{}]"#, vec!["{\"a\":[1]}"; 100_000].join(","));
        let text = format!(
            r#"{{{unknown},"items":[{{"metadata":{{"name":"g",{unknown}}},"versions":[{{"version":"v1",{unknown},
            "resources":[{{"resource":"things","verbs":["get"],"responseKind":{{"kind":"Thing",{unknown}}}}}]}}]}}]}}"#
        );
        let parsed = of.parse(Published::Groups, text.as_bytes()).unwrap();
        assert_eq!(
            parsed,
            json!({"items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": [
                {"resource": "things", "verbs": ["get"], "responseKind": {"kind": "Thing"}}]}]}]})
        );
    }

    #[test]
    fn what_clients_read_of_openapi_is_kept() {
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
        assert_eq!(of.parse(Published::OpenApiV2, &text).unwrap(), document);
        let v3 = json!({"openapi": "3.0.0", "paths": {"/apis/g/v1/": {"get": {"requestBody": {"content":
            {"*/*": {"schema": {"oneOf": [{"nullable": true}, {"not": {"type": "string"}}]}}}}}}},
            "components": {"schemas": {"T": {"properties": {"a": {"x-kubernetes-list-type": "atomic"}}}}}});
        let text = crate::apimachinery::codec::json::to_vec(&v3);
        assert_eq!(of.parse(Published::OpenApiV3, &text).unwrap(), v3);
    }

    #[test]
    fn a_document_of_many_small_values_is_refused_by_their_number() {
        let of = Documents::new(DocumentLimits {
            discovery: 1 << 20,
            openapi: 1 << 20,
        });
        let many = format!(r#"{{"definitions":{{"a":{{"enum":[{}0]}}}}}}"#, "0,".repeat(100_000));
        let why = of.parse(Published::OpenApiV2, many.as_bytes()).unwrap_err();
        assert_eq!(why, "the document has more than 32768 values");
        let large = format!(r#"{{"junk":"{}"}}"#, "x".repeat(1 << 20));
        let why = of.parse(Published::OpenApiV2, large.as_bytes()).unwrap_err();
        assert_eq!(why, "the document is larger than 1048576 bytes");
        let names: String = (0..20_001).map(|i| format!("\"d{i}\":{{}},")).collect();
        let why = Documents::default().parse(
            Published::OpenApiV2,
            format!(r#"{{"definitions":{{{names}"z":{{}}}}}}"#).as_bytes(),
        );
        assert_eq!(why.unwrap_err(), "the document has more than 20000 definitions");
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let text = format!(r#"{{"junk":{deep},"info":{deep}}}"#);
        let why = of.parse(Published::OpenApiV2, text.as_bytes()).unwrap_err();
        assert_eq!(why, "the document nests deeper than 200 levels");
    }
}
