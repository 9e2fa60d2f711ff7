//! Bodies for data from backends and about them: HTML pages, discovery and OpenAPI documents, annotations.

use bytes::BytesMut;
use std::collections::BTreeMap;
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;
use torana::json;
use torana::testing::aggregator::{
    Documents, PublishedKind, bounds, filter, from_resource_list, merge, v3_of, versions,
};
use torana::testing::proxy::spdy::{Decoder, Frame, Malformed, PIECE};
use torana::testing::proxy::{Links, Page, target};

fn rewritten<'a>(links: Links, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut page, mut out) = (Page::new(links), Vec::new());
    for piece in pieces {
        page.push(piece, &mut out);
    }
    page.finish(&mut out);
    out
}

/// A kubelet's frames are the same in any portions, and no piece of data is larger than promised.
pub(crate) fn spdy(data: &[u8]) {
    let decoded = |size: usize| {
        let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
        let mut streams: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for portion in data.chunks(size) {
            input.extend_from_slice(portion);
            while let Some(frame) = decoder.next(&mut input)? {
                if let Frame::Data(stream, bytes) = frame {
                    assert!(bytes.len() <= PIECE);
                    streams.entry(stream).or_default().extend_from_slice(&bytes);
                }
            }
        }
        Ok::<_, Malformed>(streams)
    };
    assert_eq!(decoded(1), decoded(data.len().max(1)));
}

/// Rewriting a page does not depend on how it is split into chunks; a page without links to the backend loses
/// no text.
pub(crate) fn html(data: &[u8]) {
    for links in [
        Links::to_backend("b:443"),
        Links::below("/api/v1/nodes/n/proxy", &["b:443", ""]),
    ] {
        let whole = rewritten(links.clone(), std::iter::once(data));
        for size in [1, 7] {
            assert_eq!(
                rewritten(links.clone(), data.chunks(size)),
                whole,
                "in pieces of {size}"
            );
        }
        if !data.contains(&b'<') {
            assert_eq!(whole, data);
        }
    }
}

/// A rewritten link to the backend points to this server.
pub(crate) fn link(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let links = Links::below("/proxied", &["b:443"]);
    if let Some(once) = links.rewritten(text) {
        assert!(once.starts_with('/') && !once.starts_with("//"), "{once:?}");
    }
    let _ = Links::to_backend("b:443").rewritten(text);
}

/// The known part of a document. Reading it again changes nothing.
fn published(what: PublishedKind, data: &[u8]) -> Option<Value> {
    let documents = Documents::default();
    let parsed = documents.parse(what, data).ok()?;
    let again = documents.parse(what, &json::to_vec(&parsed));
    assert_eq!(again.expect("it was parsed before"), parsed);
    Some(parsed)
}

/// Any discovery document is converted to entries without panicking.
pub(crate) fn discovery(data: &[u8]) {
    if let Some(document) = published(PublishedKind::Groups, data) {
        let _ = bounds::groups(&document);
        for entry in versions(document).values() {
            assert!(!entry.get("freshness").is_null());
        }
    }
    if let Some(document) = published(PublishedKind::Resources, data)
        && let Ok(entry) = from_resource_list(&document, "v1")
    {
        assert_eq!(entry.str_at(&["version"]), "v1");
        let _ = bounds::version("g", &entry);
    }
}

/// Documents are filtered, merged and converted; the paths of the kept ones remain.
pub(crate) fn openapi(data: &[u8]) {
    published(PublishedKind::OpenApiV3, data);
    published(PublishedKind::OpenApiV3Index, data);
    let Some(document) = published(PublishedKind::OpenApiV2, data) else {
        return;
    };
    let mut all = json!({"swagger": "2.0", "paths": {"/apis/a/": {"get": {"operationId": "a", "responses": {"200":
        {"schema": {"$ref": "#/definitions/A"}}}}}}, "definitions": {"A": {"type": "object"}}});
    let mine = all.at(&["paths", "/apis/a/"]).clone();
    let mut kept = document.clone();
    filter(&mut kept, |path| path.starts_with("/apis/"));
    merge(&mut all, kept);
    merge(&mut all, document.clone());
    assert_eq!(all.at(&["paths", "/apis/a/"]), &mine);
    v3_of(&document);
    v3_of(&all);
}

/// Annotations yield a backend, or the error names the wrong annotation.
pub(crate) fn annotations(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut annotations = json!({});
    for line in text.lines() {
        if let Some((key, value)) = line.split_once('=') {
            annotations.set(&[&format!("torana.dev/backend-{key}")], value);
        }
    }
    let object =
        json!({"metadata": {"annotations": annotations}, "spec": {"service": {"name": "s", "namespace": "n"}}});
    let _ = target::warnings(&object);
    if let Err(errors) = target::read(&object) {
        assert!(!errors.is_empty());
    }
}

/// Responses of a conversion webhook. An accepted object keeps its identity, and metadata other than labels
/// and annotations.
pub(crate) fn conversion(data: &[u8]) {
    use torana::testing::conversion::{ReviewVersion, accept, converted_objects};
    for version in [ReviewVersion::V1, ReviewVersion::V1Beta1] {
        let original = json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "uid": "u",
            "finalizers": ["f"], "labels": {"l": "1"}}});
        for converted in converted_objects(version, "u", data).into_iter().flatten() {
            let Ok(accepted) = accept(&original, converted, "g/v2") else {
                continue;
            };
            assert_eq!(accepted.get("apiVersion"), &Value::from("g/v2"));
            let bare = |v: &Value| {
                let mut metadata = v.get("metadata").clone();
                metadata.unset(&["labels"]);
                metadata.unset(&["annotations"]);
                metadata
            };
            assert_eq!(bare(&accepted), bare(&original));
        }
    }
}

/// Responses of an admission webhook. A validating webhook never gets a patch through, and one without a
/// known UID is refused in v1.
pub(crate) fn admission(data: &[u8]) {
    use torana::testing::admission::{ReviewVersion, answer};
    for version in [ReviewVersion::V1, ReviewVersion::V1Beta1] {
        if let Ok(validating) = answer(version, "u", false, data) {
            assert!(validating.patch.is_empty());
        }
        let _ = answer(version, "u", true, data);
    }
    assert!(answer(ReviewVersion::V1, "no such uid in any seed", true, data).is_err());
}
