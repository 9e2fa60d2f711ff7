//! [`Loopback`]: requests of a control loop to the gateway's own filter chain, without a connection, as the
//! service account that upstream's loop of the same name uses.

pub(crate) use super::failure::Failure;
use super::sized::{self, LARGE};
use crate::apimachinery::codec::json;
use crate::apimachinery::value::Value;
use crate::request::percent::encode_path;
use crate::request::user::{AUTHENTICATED, MASTERS};
use crate::request::{Body, Handler, RemoteAddr, Request, RequestContext, Response, UserInfo};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Uri};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Maximum size in bytes of a response. Lists are read in pages.
const MAX_RESPONSE: usize = 64 << 20;
/// The client's name, which the server records as the manager of the fields that it writes.
const AGENT: &str = concat!("kube-controller-manager/torana-", env!("CARGO_PKG_VERSION"));

pub(super) const JSON: &str = "application/json";
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A client that is one user. Clones share the connection-less transport.
#[derive(Clone)]
pub(crate) struct Loopback {
    handler: Arc<dyn Handler>,
    user: Arc<UserInfo>,
    agent: HeaderValue,
}

/// The path of a resource's objects, or of one object, or of a subresource.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path<'a> {
    pub group: &'a str,
    pub version: &'a str,
    /// Empty for cluster-scoped kinds, and for all namespaces.
    pub namespace: &'a str,
    pub resource: &'a str,
    /// Empty for the collection.
    pub name: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
}

impl<'a> Path<'a> {
    /// The collection of a resource in the core group.
    pub(crate) fn core(namespace: &'a str, resource: &'a str) -> Self {
        Self {
            version: "v1",
            namespace,
            resource,
            ..Self::default()
        }
    }

    /// The collection of a resource in a group.
    pub(crate) fn of(group: &'a str, version: &'a str, namespace: &'a str, resource: &'a str) -> Self {
        Self {
            group,
            version,
            ..Self::core(namespace, resource)
        }
    }

    /// One object of the collection.
    pub(crate) fn name(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    /// A subresource of the object.
    pub(crate) fn subresource(self, subresource: &'a str) -> Self {
        Self { subresource, ..self }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            "" => write!(f, "/api/{}", self.version)?,
            group => write!(f, "/apis/{group}/{}", self.version)?,
        }
        // The storage key of a Namespace has no namespace, but some callers set one.
        if !self.namespace.is_empty() && (self.resource, self.name) != ("namespaces", self.namespace) {
            write!(f, "/namespaces/{}", self.namespace)?;
        }
        write!(f, "/{}", self.resource)?;
        for part in [self.name, self.subresource] {
            if !part.is_empty() {
                write!(f, "/{}", encode_path(part.as_bytes()))?;
            }
        }
        Ok(())
    }
}

/// The object of a request.
pub(crate) enum Payload<'a> {
    /// A small one, which is encoded in place.
    Small(&'a Value),
    /// One that may be large, encoded off the reactor.
    Encoded(Bytes),
    /// One that may be large, which is encoded and dropped off the reactor if it is.
    Owned(Value),
}

impl<'a> From<&'a Value> for Payload<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Small(value)
    }
}

impl From<Bytes> for Payload<'_> {
    fn from(bytes: Bytes) -> Self {
        Self::Encoded(bytes)
    }
}

impl From<Value> for Payload<'_> {
    fn from(value: Value) -> Self {
        Self::Owned(value)
    }
}

/// The encoding of an object for a request.
pub(crate) fn encode(object: &Value) -> Bytes {
    json::to_vec(object).into()
}

/// `Ok(None)` instead of 404.
pub(crate) fn found<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Ok(object) => Ok(Some(object)),
        Err(e) if e.code == 404 => Ok(None),
        Err(e) => Err(e),
    }
}

impl Loopback {
    /// A client that is the service account `name` in kube-system.
    pub(crate) fn service_account(handler: &Arc<dyn Handler>, name: &str) -> Self {
        let groups = [
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            AUTHENTICATED,
        ];
        let user = UserInfo::system(&format!("system:serviceaccount:kube-system:{name}"), &groups);
        Self::new(
            handler,
            user,
            &format!("{AGENT}/system:serviceaccount:kube-system:{name}"),
        )
    }

    /// A client that is kube-controller-manager itself, for a component without a service account.
    pub(crate) fn manager(handler: &Arc<dyn Handler>, component: &str) -> Self {
        let user = UserInfo::system("system:kube-controller-manager", &[AUTHENTICATED]);
        Self::new(handler, user, &format!("{AGENT}/{component}"))
    }

    /// A client that is the administrator of the generated kubeconfig.
    pub(crate) fn administrator(handler: &Arc<dyn Handler>) -> Self {
        let user = UserInfo::system("kubernetes-admin", &[MASTERS, AUTHENTICATED]);
        Self::new(handler, user, concat!("torana/", env!("CARGO_PKG_VERSION")))
    }

    fn new(handler: &Arc<dyn Handler>, user: UserInfo, agent: &str) -> Self {
        Self {
            handler: handler.clone(),
            user: Arc::new(user),
            agent: HeaderValue::from_str(agent).expect("names of users and versions are ASCII"),
        }
    }

    /// Reads an object, a list or a document.
    pub(crate) async fn get(&self, path: impl fmt::Display) -> Result<Value, Failure> {
        self.accept(path, JSON).await
    }

    /// Reads a document in the media type `accept`.
    pub(crate) async fn accept(&self, path: impl fmt::Display, accept: &str) -> Result<Value, Failure> {
        self.extract(path, accept, |object| object).await
    }

    /// Reads a document and returns the result of `extract`, which runs off the reactor if the document is large.
    pub(crate) async fn extract<T: Send + 'static>(
        &self,
        path: impl fmt::Display,
        accept: &str,
        extract: impl FnOnce(Value) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let path = path.to_string();
        read(self.respond(Method::GET, &path, accept, None).await?, extract).await
    }

    /// Creates an object in a collection.
    pub(crate) async fn create(&self, collection: Path<'_>, object: impl Into<Payload<'_>>) -> Result<(), Failure> {
        done(self.post(collection, object).await?).await
    }

    /// Creates an object and returns the response, for virtual resources such as reviews.
    pub(crate) async fn ask(&self, collection: Path<'_>, object: impl Into<Payload<'_>>) -> Result<Value, Failure> {
        read(self.post(collection, object).await?, |answer| answer).await
    }

    async fn post(&self, collection: Path<'_>, object: impl Into<Payload<'_>>) -> Result<Response, Failure> {
        let path = collection.to_string();
        self.respond(Method::POST, &path, JSON, Some((JSON, object.into())))
            .await
    }

    /// Replaces an object (PUT); a `resourceVersion` in it makes the write conditional.
    pub(crate) async fn replace(&self, path: Path<'_>, object: impl Into<Payload<'_>>) -> Result<(), Failure> {
        done(self.put(path, object).await?).await
    }

    /// The same; returns the object as it was written.
    pub(crate) async fn replaced(&self, path: Path<'_>, object: impl Into<Payload<'_>>) -> Result<Value, Failure> {
        read(self.put(path, object).await?, |written| written).await
    }

    async fn put(&self, path: Path<'_>, object: impl Into<Payload<'_>>) -> Result<Response, Failure> {
        let path = path.to_string();
        self.respond(Method::PUT, &path, JSON, Some((JSON, object.into())))
            .await
    }

    /// Patches an object; `kind` is the patch's media type.
    pub(crate) async fn patch(
        &self,
        path: impl fmt::Display,
        kind: &str,
        patch: impl Into<Payload<'_>>,
    ) -> Result<(), Failure> {
        done(self.send_patch(path, kind, patch).await?).await
    }

    /// The same; returns the object as it was written.
    pub(crate) async fn patched(
        &self,
        path: impl fmt::Display,
        kind: &str,
        patch: impl Into<Payload<'_>>,
    ) -> Result<Value, Failure> {
        read(self.send_patch(path, kind, patch).await?, |written| written).await
    }

    async fn send_patch(
        &self,
        path: impl fmt::Display,
        kind: &str,
        patch: impl Into<Payload<'_>>,
    ) -> Result<Response, Failure> {
        let path = path.to_string();
        self.respond(Method::PATCH, &path, JSON, Some((kind, patch.into())))
            .await
    }

    /// Deletes an object, or all of a collection, with these DeleteOptions.
    pub(crate) async fn delete(&self, path: Path<'_>, options: &Value) -> Result<(), Failure> {
        let path = path.to_string();
        let body = Some((JSON, options.into()));
        done(self.respond(Method::DELETE, &path, JSON, body).await?).await
    }

    async fn respond(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<(&str, Payload<'_>)>,
    ) -> Result<Response, Failure> {
        let mut request = Request::default();
        *request.method_mut() = method;
        *request.uri_mut() = path.parse::<Uri>().map_err(Failure::unreadable)?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, self.agent.clone());
        headers.insert(ACCEPT, HeaderValue::from_str(accept).map_err(Failure::unreadable)?);
        if let Some((kind, payload)) = body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_str(kind).map_err(Failure::unreadable)?);
            let bytes = match payload {
                Payload::Small(value) => encode(value),
                Payload::Encoded(bytes) => bytes,
                Payload::Owned(value) => {
                    // Counting stops at the limit, so a huge value is not walked on the reactor.
                    let size = if value.is_larger_than(LARGE) { LARGE } else { 0 };
                    sized::compute(size, move || encode(&value)).await?
                }
            };
            *request.body_mut() = Body::full(bytes);
        }
        let context = RequestContext::of_mut(&mut request);
        // Trusted by the authentication filter. It is not a header, so that no client can send it.
        context.in_process = Some(self.user.clone());
        // Audit records the source address; these requests have no connection.
        context.remote = Some(RemoteAddr(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
        Ok(self.handler.handle(request).await)
    }
}

/// The success of a request whose answer is not wanted: it is not even read, since it may be large.
async fn done(response: Response) -> Result<(), Failure> {
    match response.status().is_success() {
        true => Ok(()),
        // A failure's Status is small and explains itself.
        false => read(response, drop).await,
    }
}

async fn read<T: Send + 'static>(
    response: Response,
    extract: impl FnOnce(Value) -> T + Send + 'static,
) -> Result<T, Failure> {
    let status = response.status();
    // Bounded: an aggregated API server may answer with anything.
    let bytes = response.into_body().collect(MAX_RESPONSE).await;
    let bytes = bytes.map_err(|e| Failure::unreadable(format!("{e:?}")))?;
    // The size decides where the decoding runs; `extract` runs there, too, with the whole document.
    let size = bytes.len();
    if !status.is_success() {
        let code = status.as_u16();
        let failed = move || Failure::of(code, &json::decode(&bytes).unwrap_or_default());
        let mut failure = sized::compute(size, failed).await?;
        if failure.message.is_empty() {
            // Bodies that are not a Status, for example of an aggregated server.
            failure.message = status.to_string();
        }
        return Err(failure);
    }
    let read = sized::compute(size, move || json::decode(&bytes).map(extract)).await?;
    read.map_err(Failure::unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn paths_are_those_of_the_api() {
        assert_eq!(
            Path::core("", "namespaces").name("x").to_string(),
            "/api/v1/namespaces/x"
        );
        let path = Path::of("apps", "v1", "x", "deployments")
            .name("d")
            .subresource("status");
        assert_eq!(path.to_string(), "/apis/apps/v1/namespaces/x/deployments/d/status");
        let path = Path::of("g", "v1", "", "rs").name("system:a b");
        assert_eq!(path.to_string(), "/apis/g/v1/rs/system:a%20b");
    }

    /// Answers with the caller's name, or fails as a namespace that is being deleted does.
    struct Server;

    #[async_trait::async_trait]
    impl Handler for Server {
        async fn handle(&self, request: Request) -> Response {
            let user = RequestContext::of(&request).in_process.clone();
            let (code, answer) = match request.method() {
                &Method::GET => (200, json!({"user": (user.map(|u| u.name.clone()))})),
                _ => (
                    403,
                    json!({"reason": "Forbidden", "message": "no", "details": {"causes": [{"reason": "NamespaceTerminating"}]}}),
                ),
            };
            let mut response = Response::new(Body::full(json::to_vec(&answer)));
            *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
            response
        }
    }

    #[tokio::test]
    async fn requests_carry_the_identity_and_failures_their_causes() {
        let handler: Arc<dyn Handler> = Arc::new(Server);
        let api = Loopback::service_account(&handler, "namespace-controller");
        let path = Path::core("a", "pods");
        let answer = api.get(path).await.unwrap();
        assert_eq!(
            answer.str_at(&["user"]),
            "system:serviceaccount:kube-system:namespace-controller"
        );
        let failed = api.create(path, &Value::Null).await.unwrap_err();
        assert_eq!((failed.code, failed.message.as_str()), (403, "no"));
        assert!(failed.has_reason("NamespaceTerminating") && failed.has_reason("Forbidden"));
        assert_eq!(api.delete(path, &Value::Null).await.unwrap_err().code, 403);
    }
}
