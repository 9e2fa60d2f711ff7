//! Relays a request to a backend, as upstream's `UpgradeAwareHandler` does
//! (`k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go`). [`relay_request`] relays any request,
//! [`relay_upgrade`] only upgrades.

use crate::apimachinery::status::{Result, Status};
use crate::proxy::backend::{self, Backend, BackendError, Upgrade};
use crate::proxy::headers::Special;
use crate::proxy::html::{Encoding, Rewritten};
use crate::proxy::links::Links;
use crate::proxy::policy::ProxyPolicy;
use crate::proxy::{headers, tunnel, url};
use crate::request::{Body, FromBackend, InformationalSender, Request, RequestContext, Response};
use crate::tasks::TaskGroup;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, StatusCode, Uri, header};

/// The request target of a path and query.
pub(super) fn target(path: &str, query: &str) -> Result<Uri> {
    // Escaped again: the path was decoded when the request was routed.
    let mut text = url::escaped_path(path);
    if !query.is_empty() {
        text.push('?');
        text.push_str(query);
    }
    let parsed = PathAndQuery::try_from(text).map_err(|e| Status::internal(format!("invalid path: {e}")))?;
    Ok(Uri::from(parsed))
}

/// The request to send to the backend. Hop-by-hop headers are left to the caller.
///
/// # Errors
/// 508 if the request has passed this gateway before.
pub(super) fn outgoing(req: Request, to: Uri, policy: &ProxyPolicy) -> Result<http::Request<Body>> {
    let (mut head, body) = req.into_parts();
    // First: a request that loops through this gateway ends here.
    policy.pass(&mut head.headers)?;
    // The client's Host header is kept, as upstream does; HTTP/2 carries it in the URI.
    if let Some(authority) = head.uri.authority()
        && !head.headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        head.headers.insert(header::HOST, host);
    }
    // The caller's credentials are for this server only.
    head.headers.remove(header::AUTHORIZATION);
    let client = RequestContext::of(&head).remote.map(|a| a.0.ip());
    headers::forwarded_for(&mut head.headers, client);
    let mut out = http::Request::new(body);
    if let Some(informational) = InformationalSender::of(RequestContext::of(&head)) {
        // For `backend::send`, which knows the connection.
        out.extensions_mut().insert(informational);
    }
    *out.method_mut() = head.method;
    *out.headers_mut() = head.headers;
    *out.uri_mut() = to;
    Ok(out)
}

/// Relays a protocol upgrade (SPDY or WebSocket) to `path` on the backend.
///
/// # Errors
/// 400 if the request is not an upgrade; 500 if the backend does not upgrade.
pub(super) async fn relay_upgrade(
    backend: &Backend,
    path: &str,
    query: &str,
    mut req: Request,
    (tasks, policy): (&TaskGroup, &ProxyPolicy),
) -> Result<Response> {
    if !headers::wants_upgrade(req.headers()) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let Some(client) = tunnel::client_side(&mut req) else {
        return Err(Status::raw_error(
            "request connection cannot be hijacked: feature not supported",
        ));
    };
    let mut out = outgoing(req, target(path, query)?, policy)?;
    // An upgrade keeps its `Connection` header, which could otherwise list the headers set above for removal.
    headers::keep_identity_end_to_end(out.headers_mut());
    match backend::upgrade(backend, out, client, tasks).await {
        Ok(Upgrade::Answered(mut answer)) => {
            policy.clean_upgrade(answer.headers_mut());
            Ok(answer)
        }
        Ok(Upgrade::Unexpected(code)) => Err(Status::raw_error(format!(
            "invalid upgrade response: status code {}",
            code.as_u16()
        ))),
        Err(BackendError::Dial(why)) => Err(Status::raw_error(format!("error dialing backend: {why}"))),
        Err(BackendError::Client(why)) => Err(unreadable(&why)),
        Err(BackendError::Exchange(why)) => Err(Status::raw_error(format!("error sending request: {why}"))),
    }
}

/// Relays a request to `path` on the backend, which is the part of the request path after the proxy prefix,
/// and returns the response.
///
/// # Errors
/// 503 if the backend cannot be reached.
pub(super) async fn relay_request(
    backend: &Backend,
    path: &str,
    req: Request,
    (tasks, policy): (&TaskGroup, &ProxyPolicy),
) -> Result<Response> {
    let query = req.uri().query().unwrap_or("").to_owned();
    let asked = req.uri().path().to_owned();
    let mut path = if path.is_empty() {
        String::new()
    } else {
        // Upstream joins the path with Go's `path.Join`, which resolves `..`.
        url::cleaned_path(path).into_owned()
    };
    if headers::wants_upgrade(req.headers()) {
        return relay_upgrade(
            backend,
            if path.is_empty() { "/" } else { &path },
            &query,
            req,
            (tasks, policy),
        )
        .await;
    }
    if asked.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    // Only methods that every client repeats unchanged after a 301.
    if path.is_empty() && matches!(*req.method(), Method::GET | Method::HEAD) {
        return Ok(redirect_to_slash(&asked, &query));
    }
    let prefix = asked.strip_suffix(path.as_str()).unwrap_or(&asked).to_owned();
    let to = target(if path.is_empty() { "/" } else { &path }, &query)?;
    let mut req = req;
    // Before headers are added: a client may list any header in `Connection`, and listed headers are removed.
    Special::of(req.headers()).strip_request(req.headers_mut());
    let mut out = outgoing(req, to, policy)?;
    if let Ok(forwarded) = HeaderValue::from_str(&format!("{prefix}{}", url::escaped_path(&path))) {
        out.headers_mut().insert("x-forwarded-uri", forwarded);
    }
    // The backend sees the client's Host, so its absolute links may use either that name or its own address.
    let host = out.headers().get(header::HOST).cloned();
    let mut answer = match backend::send(backend, out, tasks).await {
        Ok(answer) => answer,
        Err(BackendError::Client(why)) => return Err(unreadable(&why)),
        Err(why) => {
            return Err(Status::service_unavailable(format!(
                "error trying to reach service: {why}"
            )));
        }
    };
    let special = Special::of(answer.headers());
    policy.clean_answer(special, answer.headers_mut());
    let own = [
        backend.authority.as_str(),
        host.as_ref().and_then(|h| h.to_str().ok()).unwrap_or(""),
    ];
    let links = Links::below(&prefix, &own);
    // Tells the filters to leave the backend's headers in place and not to count the request.
    answer.extensions_mut().insert(FromBackend::Proxied);
    // An empty body, as after HEAD, has no links to rewrite and keeps its Content-Length.
    let is_page = !http_body::Body::is_end_stream(answer.body()) && policy.confine(answer.headers_mut());
    // As upstream's `proxy.Transport`, a response with a location keeps its body: clients follow the header,
    // not the page.
    if let Some(location) = answer.headers().get(header::LOCATION).and_then(|l| l.to_str().ok()) {
        if let Some(rewritten) = links.rewritten(location)
            && let Ok(value) = HeaderValue::from_str(&rewritten)
        {
            answer.headers_mut().insert(header::LOCATION, value);
        }
        return Ok(answer.map(Body::stream));
    }
    let (mut head, body) = answer.map(Body::stream).into_parts();
    let body = match Encoding::of_page(&head.headers) {
        Some(encoding) if is_page => {
            // Rewriting changes the length.
            head.headers.remove(header::CONTENT_LENGTH);
            Body::stream(Rewritten::new(body, encoding, links))
        }
        _ => body,
    };
    Ok(Response::from_parts(head, body))
}

/// The client aborted its request body: not a backend failure.
fn unreadable(why: &str) -> Status {
    Status::bad_request(format!("the request body cannot be read: {why}"))
}

/// Redirects the proxy root to the path with a trailing slash, so that relative links resolve below it.
fn redirect_to_slash(path: &str, query: &str) -> Response {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let mark = if query.is_empty() { "" } else { "?" };
    if let Ok(to) = HeaderValue::from_str(&format!("{path}/{mark}{query}")) {
        answer.headers_mut().insert(header::LOCATION, to);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn links_in_html_are_rewritten_below_the_proxy() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let page = format!("<a href=\"/x\"><img src=\"http://{authority}/i\"><a href=\"y\">");
        let response = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
            page.len()
        );
        tokio::spawn(async move {
            let (mut s, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(s.read_u8().await.unwrap());
            }
            assert!(head.starts_with(b"GET /page?a=b HTTP/1.1\r\n"));
            s.write_all(response.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        let backend = Backend {
            authority,
            tls: None,
            connect_timeout: std::time::Duration::from_secs(5),
            addresses: None,
            place: None,
        };
        let prefix = "/api/v1/namespaces/n/pods/p/proxy";
        let req = http::Request::get(format!("{prefix}/page?a=b"))
            .body(Body::empty())
            .unwrap();
        let tasks = TaskGroup::new("test");
        let policy = ProxyPolicy::default();
        let answer = relay_request(&backend, "page", req, (&tasks, &policy)).await.unwrap();
        assert!(!answer.headers().contains_key(header::CONTENT_LENGTH));
        let bytes = answer.into_body().collect(1 << 10).await.unwrap();
        let wanted = format!("<a href=\"{prefix}/x\"><img src=\"{prefix}/i\"><a href=\"y\">");
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn the_root_redirects_to_a_trailing_slash() {
        let answer = redirect_to_slash("/api/v1/nodes/n/proxy", "a=b");
        assert_eq!(answer.headers()[header::LOCATION], "/api/v1/nodes/n/proxy/?a=b");
    }
}
