//! Responses built without the serializers: plain text as Go's `http.Error` writes it, and `Status` objects of
//! the filters and the container.

mod proto;

use crate::api::json;
use crate::apimachinery::codec::yaml;
use crate::apimachinery::status::Status;
use crate::request::accept::{accept_line, clauses, is_browser};
use crate::request::{Authorized, Body, Request, RequestInfo, Response, UnprotectedHandler};
use async_trait::async_trait;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use std::sync::Arc;

/// Go's content type for plain text.
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The JSON content type.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The value of `X-Content-Type-Options`.
pub(crate) const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

/// A response with this content type and body.
pub(crate) fn bytes(code: StatusCode, content_type: HeaderValue, body: impl Into<Body>) -> Response {
    let mut r = Response::new(body.into());
    *r.status_mut() = code;
    r.headers_mut().insert(CONTENT_TYPE, content_type);
    r
}

/// The response of Go's `http.Error`: the message, a newline, and `nosniff`.
pub(crate) fn error_text(code: StatusCode, text: &str) -> Response {
    let mut r = bytes(code, TEXT, format!("{text}\n"));
    r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    r
}

/// The response of Go's `http.NotFound`.
pub(crate) fn not_found_text() -> Response {
    let mut r = bytes(StatusCode::NOT_FOUND, TEXT, "404 page not found\n");
    r.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    r
}

/// `Internal Server Error: "<uri>": <error>`, as upstream's `responsewriters.InternalError`.
pub(crate) fn internal_error_text(uri: &http::Uri, error: &str) -> Response {
    // Escaped because the text quotes the client's URI and old browsers guess the type of a response.
    let text = format!("Internal Server Error: {:?}: {error}", request_uri(uri));
    error_text(StatusCode::INTERNAL_SERVER_ERROR, &html_escape(&text))
}

/// The path and query as in the request line.
pub(crate) fn request_uri(uri: &http::Uri) -> &str {
    uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str)
}

/// A `Status` response in a media type that the request's `headers` accept. If none is acceptable it is
/// indented JSON.
pub(crate) fn status(status: &Status, headers: &HeaderMap) -> Response {
    status_as(&MEDIA, status, headers)
}

/// Like [`status`], for pages whose media types do not include protobuf.
pub(crate) fn status_without_protobuf(status: &Status, headers: &HeaderMap) -> Response {
    status_as(&MEDIA[..2], status, headers)
}

fn status_as(offered: &[(Media, &str)], status: &Status, headers: &HeaderMap) -> Response {
    let (content_type, body) = encode(offered, status, headers);
    // A webhook or backend chooses the code of some, which may be none of HTTP's.
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut r = bytes(code, content_type, body);
    if status.retry_after() > 0 {
        r.headers_mut().insert(RETRY_AFTER, status.retry_after().into());
    }
    r
}

fn encode(offered: &[(Media, &str)], status: &Status, headers: &HeaderMap) -> (HeaderValue, Vec<u8>) {
    match negotiate(offered, headers) {
        Some((Media::Protobuf, _)) => (HeaderValue::from_static(PROTOBUF), proto::status(status)),
        Some((Media::Yaml, _)) => (HeaderValue::from_static(YAML), yaml::to_vec(&status.to_value())),
        Some((Media::Json, false)) => (JSON, line(json::to_vec(&status.to_value()))),
        // Indented JSON ends without a newline.
        Some((Media::Json, true)) | None => (JSON, json::to_vec_pretty(&status.to_value())),
    }
}

const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[derive(Clone, Copy)]
enum Media {
    Json,
    Yaml,
    Protobuf,
}

/// The media types of a `Status`, in the order in which a wildcard takes them.
const MEDIA: [(Media, &str); 3] = [
    (Media::Json, "application/json"),
    (Media::Yaml, YAML),
    (Media::Protobuf, PROTOBUF),
];

/// The first clause, in order of preference, that names an offered media type without a transformation, and
/// whether to indent; `None` if there is none.
fn negotiate(offered: &[(Media, &str)], headers: &HeaderMap) -> Option<(Media, bool)> {
    clauses(accept_line(headers)).into_iter().find_map(|clause| {
        let streams = clause.param("stream").is_some();
        if ["as", "g", "v", "sv"].iter().any(|name| clause.param(name).is_some())
            || clause.param("stream").is_some_and(|schema| schema != "watch")
        {
            return None;
        }
        // YAML does not delimit events, so a clause that asks for a stream skips it.
        let mut fitting = offered.iter().filter(|(_, name)| clause.takes(name));
        let (media, _) = fitting.find(|(media, _)| !(streams && matches!(media, Media::Yaml)))?;
        Some((*media, clause.param("pretty") == Some("1") || is_browser(headers)))
    })
}

fn line(mut body: Vec<u8>) -> Vec<u8> {
    body.push(b'\n');
    body
}

/// The container's 404: the path's group exists, but the path does not.
pub(crate) fn route_not_found(headers: &HeaderMap) -> Response {
    let mut s = Status::new(404, "NotFound", "the server could not find the requested resource");
    // Creates empty `details`, which upstream's response has, too.
    s.details_mut();
    status(&s, headers)
}

/// The container's 405: the path exists, but not with this method.
pub(crate) fn method_not_allowed(headers: &HeaderMap) -> Response {
    let mut s = Status::new(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
    s.details_mut();
    status(&s, headers)
}

/// True if the client accepts the only media type of a route. go-restful compares whole types without their
/// parameters, so `application/*` does not match, and neither does an empty clause.
pub(crate) fn is_accepted(media: &str, headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).map_or(&b""[..], HeaderValue::as_bytes);
    let accepts = |clause: &[u8]| {
        let range = clause.split(|b| *b == b';').next().unwrap_or_default();
        let range = range.trim_ascii();
        range == b"*/*" || range == media.as_bytes()
    };
    // No header, or an empty one, accepts everything.
    accept.is_empty() || accept.split(|b| *b == b',').any(accepts)
}

/// The container's 406; `available` lists the media types of the route.
pub(crate) fn not_acceptable(available: &str, headers: &HeaderMap) -> Response {
    let mut s = Status::new(
        406,
        "NotAcceptable",
        format!("406: Not Acceptable\n\nAvailable representations: {available}"),
    );
    s.details_mut();
    status(&s, headers)
}

/// Escapes `&`, `<` and `>`, as upstream does in messages that quote the client.
pub(crate) fn html_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

/// The decoded path of a request, or the raw one before the request info is set.
pub(crate) fn path(req: &Request) -> &str {
    RequestInfo::of(req).map_or_else(|| req.uri().path(), |i| &i.path)
}

/// Sets a header from a string. A value that is invalid in a header is omitted.
pub(crate) fn set_header(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(v) = HeaderValue::from_str(value) {
        headers.insert(name, v);
    }
}

/// A handler that computes its response synchronously.
pub(crate) struct FnHandler<F>(pub F);

#[async_trait]
impl<F> UnprotectedHandler for FnHandler<F>
where
    F: Fn(&Request) -> Response + Send + Sync + 'static,
{
    async fn serve(self: Arc<Self>, req: Request, _: Authorized) -> Response {
        (self.0)(&req)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::USER_AGENT;

    fn content_type(accept: &str) -> (Vec<u8>, Vec<u8>) {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().expect("a header value"));
        let (t, body) = encode(&MEDIA, &Status::unauthorized(), &headers);
        (t.as_bytes().to_vec(), body)
    }

    #[test]
    fn a_route_compares_whole_media_types() {
        let accepted = |accept: &'static [u8]| {
            let accept = HeaderValue::from_bytes(accept).unwrap();
            is_accepted("application/jwk-set+json", &HeaderMap::from_iter([(ACCEPT, accept)]))
        };
        for yes in [
            &b""[..],
            b"*/*;q=0",
            b"text/html, */*",
            b"x, application/jwk-set+json ;q=0.1",
        ] {
            assert!(accepted(yes), "{yes:?}");
        }
        for no in [
            &b"application/json"[..],
            b"application/json,",
            b",",
            b";q=1",
            b"application/*",
            b"*",
            b"\xff",
        ] {
            assert!(!accepted(no), "{no:?}");
        }
        assert!(is_accepted("application/json", &HeaderMap::new()));
    }

    #[test]
    fn errors_use_the_media_type_the_client_accepts() {
        for (accept, want) in [
            ("", "application/json"),
            ("application/yaml", "application/yaml"),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/yaml",
                "application/yaml",
            ),
            (
                "application/vnd.kubernetes.protobuf, */*",
                "application/vnd.kubernetes.protobuf",
            ),
            (
                "application/vnd.kubernetes.protobuf;stream=watch",
                "application/vnd.kubernetes.protobuf",
            ),
            ("application/json;q=0.1, application/yaml", "application/yaml"),
            ("text/html", "application/json"),
            ("application/json;sv=v1", "application/json"),
            ("application/json;pretty=1", "application/json"),
        ] {
            let (got, body) = content_type(accept);
            assert_eq!(got, want.as_bytes(), "{accept}");
            let indented = ["text/html", "application/json;sv=v1", "application/json;pretty=1"].contains(&accept);
            assert_eq!(body.starts_with(b"{\n  "), indented, "{accept}");
            assert!(!(indented && body.ends_with(b"\n")), "{accept}");
        }
    }

    #[test]
    fn unsupported_protobuf_falls_back_to_indented_json() {
        for (accept, want, indented) in [
            (PROTOBUF, "application/json", true),
            (
                "application/vnd.kubernetes.protobuf, application/json;q=0.5",
                "application/json",
                false,
            ),
            ("application/vnd.kubernetes.protobuf, application/yaml", YAML, false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            let (got, body) = encode(&MEDIA[..2], &Status::unauthorized(), &headers);
            assert_eq!(got, want, "{accept}");
            assert_eq!(body.starts_with(b"{\n  "), indented, "{accept}");
        }
    }

    #[test]
    fn errors_are_indented_for_command_line_clients() {
        let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static("curl/8"))]);
        let (_, body) = encode(&MEDIA, &Status::unauthorized(), &headers);
        assert!(body.starts_with(b"{\n  ") && body.ends_with(b"}"));
    }
}
