//! [`GatewayBuilder`]: an embedding program adds API groups, and `tower` layers around the filter chain.

use crate::cli::CompletedOptions;
use crate::request::body::BoxError;
use crate::request::{Handler, Request};
use crate::sdk::ApiGroup;
use crate::server::service::{self, GatewayService};
use bytes::Bytes;
use std::net::TcpListener;
use std::sync::Arc;
use tower::{Layer, Service};

/// Collects the parts of a gateway; made by [`Gateway::builder`](super::Gateway::builder).
///
/// ```no_run
/// use http::header::AUTHORIZATION;
/// use torana::gateway::{CompletedOptions, Error, Gateway};
/// use torana::json;
/// use torana::sdk::{ApiGroup, Kind};
/// use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
///
/// async fn serve(options: CompletedOptions) -> Result<(), Error> {
///     let note = Kind::namespaced("Note", "notes", json!({"type": "object"}));
///     Gateway::builder(options)
///         .group(ApiGroup::new("notes.example.com", "v1", [note]))
///         // Debug output of requests shows `Sensitive` in the place of a token.
///         .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION]))
///         .run()
///         .await
/// }
/// # fn main() {}
/// ```
pub struct GatewayBuilder {
    pub(super) options: CompletedOptions,
    pub(super) groups: Vec<ApiGroup>,
    pub(super) layers: Vec<Around>,
    pub(super) sockets: Vec<TcpListener>,
}

/// Puts a layer around a handler.
pub(super) type Around = Box<dyn FnOnce(Arc<dyn Handler>) -> Arc<dyn Handler> + Send>;

impl GatewayBuilder {
    pub(super) fn new(options: CompletedOptions) -> Self {
        Self {
            options,
            groups: Vec::new(),
            layers: Vec::new(),
            sockets: Vec::new(),
        }
    }

    /// Adds an API group. It is stored, admitted, authorized, discovered and registered like the built-in
    /// ones.
    pub fn group(mut self, group: ApiGroup) -> Self {
        self.groups.push(group);
        self
    }

    /// Puts a `tower` layer around everything so far: the filter chain and the layers added before. Without
    /// layers, requests reach the chain directly.
    ///
    /// The layer sees every request to the port before it is authenticated, with its credentials, and every
    /// response after the last filter. Responses of its own are neither logged, counted nor audited; a panic
    /// in it is logged and answered with a 500. `service::layered` has the rules for its service.
    ///
    /// ```
    /// use http::HeaderValue;
    /// use torana::gateway::{GatewayBuilder, Response};
    /// use tower::util::MapResponseLayer;
    ///
    /// fn with_name(gateway: GatewayBuilder) -> GatewayBuilder {
    ///     gateway.layer(MapResponseLayer::new(|mut response: Response| {
    ///         response.headers_mut().insert("server", HeaderValue::from_static("my-gateway"));
    ///         response
    ///     }))
    /// }
    /// # fn main() {}
    /// ```
    pub fn layer<L, B>(mut self, layer: L) -> Self
    where
        L: Layer<GatewayService> + Send + 'static,
        L::Service: Service<Request, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Error: Into<BoxError>,
        <L::Service as Service<Request>>::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.layers.push(Box::new(move |inner| service::layered(inner, &layer)));
        self
    }

    /// Serves on sockets that listen already, such as those of a service manager, instead of on the address
    /// and port of the options. The first one's address is what `admin.kubeconfig` names. Without sockets,
    /// nothing changes.
    pub fn listen_on(mut self, sockets: Vec<TcpListener>) -> Self {
        self.sockets = sockets;
        self
    }
}
