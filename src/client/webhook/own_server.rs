//! Calls of the gateway itself: the Service default/kubernetes, through which a webhook can be an aggregated
//! API (upstream: `NewDefaultAuthenticationInfoResolverWrapper` in
//! `apiserver/pkg/util/webhook/authentication.go`). They need no connection, and carry the identity of
//! upstream's loopback client, whatever the kubeconfig for webhooks says.
//!
//! Entry points: [`is_addressed`] and [`request`].

use super::Target;
use crate::request::user::{AUTHENTICATED, MASTERS};
use crate::request::{Body, RemoteAddr, Request, RequestContext, UserInfo};
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

/// The authority of the server's own Service; only its standard port counts.
const AUTHORITY: &str = "kubernetes.default.svc:443";
/// Upstream's `user.APIServerUser`, with the groups of its loopback token.
static USER: LazyLock<Arc<UserInfo>> =
    LazyLock::new(|| Arc::new(UserInfo::system("system:apiserver", &[AUTHENTICATED, MASTERS])));

/// True if the webhook is the API server itself.
pub(super) fn is_addressed(target: &Target) -> bool {
    // By name and port, not by address: a URL that names the Service means this server as well.
    target.host_and_port() == AUTHORITY
}

/// A review for this server.
pub(super) fn request(target: PathAndQuery, headers: HeaderMap, body: Bytes) -> Request {
    let mut request = Request::default();
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.into();
    *request.headers_mut() = headers;
    *request.body_mut() = Body::full(body);
    let context = RequestContext::of_mut(&mut request);
    context.in_process = Some(USER.clone());
    // As over a loopback connection, for audit events.
    context.remote = Some(RemoteAddr(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
    request
}

#[cfg(test)]
mod tests {
    use super::super::testing::webhooks_of;
    use super::super::{Call, CallError, Limits, Webhook, WebhookConfig};
    use super::*;
    use crate::json;
    use crate::request::{Handler, Response};
    use http::StatusCode;
    use http::header::{AUTHORIZATION, USER_AGENT};
    use std::time::Duration;

    /// Echoes requests, at one path.
    struct Server;

    #[async_trait::async_trait]
    impl Handler for Server {
        async fn handle(&self, request: Request) -> Response {
            if request.uri().path() != "/apis/admission.example.com/v1/reviews" {
                let mut response = Response::new(Body::from("404 page not found"));
                *response.status_mut() = StatusCode::NOT_FOUND;
                return response;
            }
            let user = RequestContext::of(&request).in_process.clone().unwrap();
            let text = format!(
                "{} {} {} {} {:?} ",
                request.method(),
                request.uri(),
                user.name,
                user.groups.join(","),
                request.headers()[USER_AGENT]
            );
            assert!(!request.headers().contains_key(AUTHORIZATION));
            let body = request.into_body().collect(100).await.unwrap();
            Response::new(Body::from([text.as_bytes(), &body].concat()))
        }
    }

    fn webhook(server: &Arc<dyn Handler>, path: &str) -> Webhook {
        let config = json!({"service": {"namespace": "default", "name": "kubernetes", "path": path}});
        let config = WebhookConfig::parse(&config).unwrap();
        let limits = Limits { calls: 4, waiting: 4 };
        webhooks_of(server).connect(&config, limits).unwrap()
    }

    fn call() -> Call {
        Call {
            body: Bytes::from_static(b"{}"),
            timeout: Duration::from_secs(10),
            max_response: 1 << 10,
        }
    }

    #[tokio::test]
    async fn the_servers_own_service_is_called_without_a_connection_as_the_loopback_user() {
        let server: Arc<dyn Handler> = Arc::new(Server);
        let answer = webhook(&server, "/apis/admission.example.com/v1/reviews")
            .post(call())
            .await;
        assert_eq!(
            answer.unwrap(),
            "POST /apis/admission.example.com/v1/reviews?timeout=10s system:apiserver system:authenticated,system:masters \
             \"kube-apiserver-admission\" {}"
        );
        let unknown = webhook(&server, "/elsewhere").post(call()).await;
        let text = "the server could not find the requested resource";
        assert_eq!(unknown, Err(CallError::Status(404, text.to_owned())));
    }

    #[tokio::test]
    async fn calls_fail_before_the_server_is_built() {
        let server: Arc<dyn Handler> = Arc::new(Server);
        let early = webhook(&server, "");
        drop(server);
        let text = "Post \"https://kubernetes.default.svc:443/?timeout=10s\": the server is still starting";
        assert_eq!(early.post(call()).await, Err(CallError::Transport(text.to_owned())));
    }

    #[test]
    fn only_the_standard_port_of_the_own_service_is_the_own_server() {
        let target = |config| WebhookConfig::parse(&config).unwrap().target;
        let service = |namespace: &str, port: i64| json!({"service": {"namespace": namespace, "name": "kubernetes", "port": port}});
        assert!(is_addressed(&target(service("default", 443))));
        assert!(!is_addressed(&target(service("default", 6443))));
        assert!(!is_addressed(&target(service("other", 443))));
        assert!(is_addressed(&target(
            json!({"url": "https://kubernetes.default.svc/x"})
        )));
        assert!(!is_addressed(&target(
            json!({"url": "https://kubernetes.default.svc:6443/x"})
        )));
    }
}
