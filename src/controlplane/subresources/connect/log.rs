//! `pods/log`: streams a container's log from its kubelet (upstream's `pkg/registry/core/pod/rest/log.go`).

use super::kubelet::Kubelets;
use super::outcome;
use crate::apimachinery::field::{ErrorList, FieldError, FieldPath};
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use crate::proxy::{backend, url};
use crate::registry::StoreLookup;
use crate::registry::resource::Connect;
use crate::registry::strategy::Context;
use crate::request::{Body, Request, Response};
use crate::tasks::TaskGroup;
use crate::websocket::{self, Handshake, Message};
use async_trait::async_trait;
use base64::Engine as _;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use http_body::Body as _;
use std::pin::Pin;
use std::task::{Poll, ready};

/// Maximum length in bytes of a kubelet's error message that is relayed (upstream's `maxReadLength`).
const MAX_REFUSAL: usize = 50_000;

/// Maximum bytes of a log in one WebSocket message.
const MAX_MESSAGE: usize = 16 << 10;

/// Serves `pods/log`.
pub(in crate::controlplane) struct Log {
    pub(in crate::controlplane) stores: StoreLookup,
    pub(in crate::controlplane) kubelets: Kubelets,
}

/// Upstream's `ValidatePodLogOptions`.
fn check(name: &str, options: &Value) -> Result<()> {
    let mut errors = ErrorList::new();
    let number = |key: &str| options.get(key).as_i64();
    if let Some(n) = number("tailLines").filter(|n| *n < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&FieldPath::new("tailLines"), n, why));
    }
    let positive = |key: &str, errors: &mut ErrorList| {
        if let Some(n) = number(key).filter(|n| *n < 1) {
            errors.push(FieldError::invalid(&FieldPath::new(key), n, "must be greater than 0"));
        }
    };
    positive("limitBytes", &mut errors);
    if number("sinceSeconds").is_some() && !options.get("sinceTime").is_null() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        // Upstream uses an empty field path here, which prints as `[]`.
        errors.push(FieldError::forbidden(&FieldPath::new("[]"), why));
    } else {
        positive("sinceSeconds", &mut errors);
    }
    if !options.get("stream").is_null() {
        errors.push(FieldError::forbidden(&FieldPath::new("stream"), "may not be specified"));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("", "PodLogOptions", name, &errors))
}

/// The requested container, or the only regular container of the pod if none is named.
pub(super) fn container<'a>(pod: &'a Value, asked: &'a str) -> Result<&'a str> {
    let of = |key: &str| {
        pod.at(&["spec", key])
            .items()
            .iter()
            .map(|c| c.str_at(&["name"]))
            .collect::<Vec<_>>()
    };
    // In the order in which upstream lists them in the error. kubectl's annotation for a default container is
    // not read by the server.
    let (init, regular, ephemeral) = (of("initContainers"), of("containers"), of("ephemeralContainers"));
    let all: Vec<&str> = [init.as_slice(), &regular, &ephemeral].concat();
    let refused = |why: String| Err(Status::bad_request(why));
    match (asked, regular.as_slice()) {
        ("", [only]) => Ok(only),
        ("", []) => refused(format!("a container name must be specified for pod {}", pod.name())),
        ("", _) => refused(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            pod.name(),
            all.join(" ")
        )),
        (asked, _) if all.contains(&asked) => Ok(asked),
        (asked, _) => refused(format!("container {asked} is not valid for pod {}", pod.name())),
    }
}

/// The kubelet's query string, with keys sorted as Go's `url.Values.Encode` sorts them.
fn query(options: &Value) -> String {
    // The container is part of the path.
    const KEYS: [&str; 7] = [
        "follow",
        "limitBytes",
        "previous",
        "sinceSeconds",
        "sinceTime",
        "tailLines",
        "timestamps",
    ];
    let pairs = KEYS.iter().filter_map(|key| {
        let value = match options.get(key) {
            Value::Null => return None,
            Value::String(s) => s.to_string(),
            other => crate::apimachinery::field::show(other),
        };
        Some(format!("{key}={value}"))
    });
    // The query is parsed again, which reads `+` as a space; the offset of a time may start with one.
    url::canonical_query(&pairs.collect::<Vec<_>>().join("&").replace('+', "%2B"))
}

/// Converts a kubelet's error response to a Status, as `NewGenericServerResponse` does in
/// `k8s.io/apimachinery/pkg/api/errors`.
fn refusal(code: StatusCode, text: &str, name: &str) -> Status {
    let (reason, message) = match code.as_u16() {
        // These two pass the kubelet's message on as it is.
        500 => return Status::internal(text),
        400 => return Status::bad_request(text),
        401 => (
            "Unauthorized",
            "the server has asked for the client to provide credentials",
        ),
        403 => ("Forbidden", text),
        404 => ("NotFound", "the server could not find the requested resource"),
        405 => (
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        503 => (
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        ),
        504 => (
            "Timeout",
            "the server was unable to return a response in the time allotted, but may still be processing the request",
        ),
        code if code >= 500 => (
            "InternalError",
            &*format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        ),
        _ => ("Unknown", "unknown"),
    };
    let mut status = Status::new(code.as_u16(), reason, format!("{message} ( pods/log {name})"));
    let details = status.details_mut();
    details.kind = "pods/log".to_owned();
    details.name = name.to_owned();
    status
}

/// Streams a log over WebSocket: an empty message first, which tells the client that the stream is open, then
/// one for each piece, in base64 if the subprotocol asks for it.
fn messages(req: Request, mut log: Body, tasks: &TaskGroup) -> Response {
    const BINARY: &str = "binary.k8s.io";
    const BASE64: &str = "base64.binary.k8s.io";
    let (mut head, _) = req.into_parts();
    let mut offered = websocket::offered(&head.headers).peekable();
    let is_any_offered = offered.peek().is_some();
    // The client's order of preference decides.
    let protocol = offered.find_map(|offered| [BINARY, BASE64].into_iter().find(|known| *known == offered));
    // Ends the borrow of the headers, which the handshake takes.
    drop(offered);
    let handshake = match Handshake::read(&mut head) {
        // As upstream's `wsstream`: without an offer the default applies, but an unknown offer is refused.
        Ok(_) if is_any_offered && protocol.is_none() => return Handshake::forbidden(),
        Ok(handshake) => handshake,
        Err(refused) => return *refused,
    };
    let message = move |bytes: Bytes| match protocol {
        Some(BASE64) => Message::Text(base64::engine::general_purpose::STANDARD.encode(bytes).into()),
        _ => Message::Binary(bytes),
    };
    let mut rest = Bytes::new();
    let pieces = stream::poll_fn(move |cx| {
        while rest.is_empty() {
            match ready!(Pin::new(&mut log).poll_frame(cx)) {
                Some(Ok(frame)) => rest = frame.into_data().unwrap_or_default(),
                // A broken log ends like a finished one: the protocol has no message for errors.
                Some(Err(_)) | None => return Poll::Ready(None),
            }
        }
        Poll::Ready(Some(rest.split_to(rest.len().min(MAX_MESSAGE))))
    });
    let messages = stream::iter([Bytes::new()]).chain(pieces).map(message);
    let limits = websocket::Limits::LISTENER;
    handshake.accept(protocol, limits, tasks, |socket| socket.publish(messages))
}

#[async_trait]
impl Connect for Log {
    fn options(&self) -> &'static str {
        "PodLogOptions"
    }

    async fn connect(&self, cx: &Context, name: &str, options: &Value, req: Request) -> Result<Response> {
        check(name, options)?;
        // Before the lookups: a caller over its share costs nothing more.
        let place = self.kubelets.connector.enter(&cx.user)?;
        let pod = self.stores.get("", "pods")?.get_value(&cx.namespace, name).await?;
        let container = container(&pod, options.str_at(&["container"]))?;
        let node = pod.str_at(&["spec", "nodeName"]);
        // Upstream returns 204 for a pod that is not scheduled yet.
        if node.is_empty() {
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = StatusCode::NO_CONTENT;
            return Ok(answer);
        }
        let address = self.kubelets.find(node, "pods").await?;
        let verified = options.get("insecureSkipTLSVerifyBackend").as_bool() != Some(true);
        let kubelet = self.kubelets.backend(&address, verified).holding(place);
        let path = format!("/containerLogs/{}/{name}/{container}", cx.namespace);
        let (path, query) = (url::escaped_path(&path), query(options));
        let target = if query.is_empty() {
            path
        } else {
            format!("{path}?{query}")
        };
        let unreached = |why: &str| {
            let url = format!("https://{}{target}", kubelet.authority);
            Status::raw_error(format!("Get {url:?}: {why}"))
        };
        let request = http::Request::get(target.as_str())
            // The default agent of Go's client, as upstream sends it.
            .header(header::USER_AGENT, "Go-http-client/1.1")
            .body(Body::empty())
            .map_err(|e| unreached(&e.to_string()))?;
        let sent = backend::send(&kubelet, request, &self.kubelets.connector.tasks).await;
        let answer = sent.map_err(|e| unreached(&e.to_string()))?;
        let code = answer.status();
        let body = Body::stream(answer.into_body());
        // The status codes that upstream accepts.
        if !(200..=206).contains(&code.as_u16()) {
            let text = outcome::start_of(body, MAX_REFUSAL).await;
            let text = text.map_err(|e| Status::internal(e.to_string()))?;
            return Err(refusal(code, &String::from_utf8_lossy(&text), name));
        }
        // Only now, because an error of the kubelet must still become an ordinary HTTP response.
        if websocket::requested(req.headers()) {
            return Ok(messages(req, body, &self.kubelets.connector.tasks));
        }
        let mut answer = Response::new(body);
        let plain = HeaderValue::from_static("text/plain");
        answer.headers_mut().insert(header::CONTENT_TYPE, plain);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn invalid_options_have_upstreams_messages() {
        let outcome = |o: Value| check("p", &o).unwrap_err().message;
        assert_eq!(
            outcome(json!({"tailLines": (-1i64), "limitBytes": 0})),
            "PodLogOptions \"p\" is invalid: [tailLines: Invalid value: -1: must be greater than or equal to 0, \
             limitBytes: Invalid value: 0: must be greater than 0]"
        );
        assert_eq!(
            outcome(json!({"sinceSeconds": 0, "sinceTime": "2024-01-01T00:00:00Z"})),
            "PodLogOptions \"p\" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        );
    }

    #[test]
    fn the_container_must_be_unambiguous() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "init"}]}});
        let outcome = |asked| container(&pod, asked).map_err(|s| s.message);
        assert_eq!(outcome("init").unwrap(), "init");
        let one = json!({"spec": {"containers": [{"name": "a"}], "ephemeralContainers": [{"name": "debug"}]}});
        assert_eq!(container(&one, "").unwrap(), "a");
        assert_eq!(outcome("x").unwrap_err(), "container x is not valid for pod p");
        assert_eq!(
            outcome("").unwrap_err(),
            "a container name must be specified for pod p, choose one of: [init a b]"
        );
    }

    #[test]
    fn kubelet_queries_and_errors_match_go() {
        let o = json!({"tailLines": 5, "follow": true, "sinceTime": "2024-01-01T00:00:00Z", "container": "a"});
        assert_eq!(query(&o), "follow=true&sinceTime=2024-01-01T00%3A00%3A00Z&tailLines=5");
        assert_eq!(
            refusal(StatusCode::NOT_FOUND, "", "p").message,
            "the server could not find the requested resource ( pods/log p)"
        );
    }
}
