//! [`World`]: a whole aggregator over in-memory storages, with one built-in group in its delegate. Tests change the
//! stored objects and send requests to its head, without a port.

use super::{MemoryStorage, Writer, alice, get, provider, text};
use crate::aggregator::build::{Aggregator, Config};
use crate::apimachinery::value::Value;
use crate::endpoints::discovery::AggregatedDiscovery;
use crate::json;
use crate::request::{Request, Response};
use crate::server::delegate::EmptyDelegate;
use crate::server::generic::GenericServer;
use crate::server::lifecycle::HookContext;
use crate::server::mux::DynHandler;
use crate::tasks::TaskGroup;
use crate::telemetry::Telemetry;
use std::sync::Arc;

/// The address that the gateway under test considers its own.
pub(crate) const OWN: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 6443);

pub(crate) struct World {
    pub api_services: Arc<MemoryStorage>,
    pub services: Arc<MemoryStorage>,
    pub slices: Arc<MemoryStorage>,
    pub secrets: Arc<MemoryStorage>,
    pub config_maps: Arc<MemoryStorage>,
    pub aggregator: Aggregator,
    pub telemetry: Telemetry,
    head: DynHandler,
    tasks: TaskGroup,
}

struct Local;

#[async_trait::async_trait]
impl crate::request::UnprotectedHandler for Local {
    async fn serve(self: Arc<Self>, req: Request, _: crate::request::Authorized) -> Response {
        match req.uri().path() {
            "/openapi/v3" => Response::new(
                r#"{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=1"}}}"#.into(),
            ),
            "/openapi/v2" => Response::new(r#"{"paths":{"/apis/apps/v1/":{}},"definitions":{"local":{}}}"#.into()),
            path => Response::new(format!("local {path}").into()),
        }
    }
}

impl World {
    /// Starts the aggregator with these objects and runs its hooks.
    pub(crate) async fn start(api_services: Arc<MemoryStorage>, services: Arc<MemoryStorage>) -> Self {
        Self::start_in(None, api_services, services).await
    }

    /// Like [`World::start`], with a directory for the disk cache.
    pub(crate) async fn start_in(
        disk_cache_dir: Option<std::path::PathBuf>,
        api_services: Arc<MemoryStorage>,
        services: Arc<MemoryStorage>,
    ) -> Self {
        Self::start_with(api_services, services, |config| config.disk_cache_dir = disk_cache_dir).await
    }

    /// Like [`World::start`], with a changed configuration.
    pub(crate) async fn start_with(
        api_services: Arc<MemoryStorage>,
        services: Arc<MemoryStorage>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let slices = MemoryStorage::new();
        let (secrets, config_maps) = (MemoryStorage::new(), MemoryStorage::new());
        let built_in = GenericServer::new("core", Arc::new(EmptyDelegate));
        for path in [
            "/openapi/v2",
            "/openapi/v3",
            "/apis/apps/v1",
            "/openapi/v3/apis/apps/v1",
        ] {
            built_in.mux().handle(path, Arc::new(Local));
        }
        let mut head = GenericServer::new("aggregator", built_in.into_delegate());
        let tasks = TaskGroup::new("world");
        let telemetry = Telemetry::new();
        let mut config = Config {
            api_services: api_services.clone(),
            writer: Arc::new(Writer(api_services.clone())),
            services: services.clone(),
            endpoint_slices: slices.clone(),
            secrets: secrets.clone(),
            config_maps: config_maps.clone(),
            definitions: MemoryStorage::new(),
            discovery: Arc::new(AggregatedDiscovery::new()),
            openapi: Vec::new(),
            telemetry: telemetry.clone(),
            connections: tasks.clone(),
            provider: provider(),
            outbound: crate::proxy::outbound::Outbound::direct()
                .with_socket_dirs([std::env::temp_dir()])
                .refusing(crate::proxy::outbound::OwnAddress {
                    bound: OWN,
                    advertised: OWN.ip(),
                }),
            policy: Default::default(),
            identity_headers: Default::default(),
            documents: Default::default(),
            identity: None,
            loopback: OWN.to_string(),
            to_endpoints: false,
            reject_redirects: true,
            keeps_discovery: true,
            priorities: Vec::new(),
            backend_limits: Default::default(),
            connection_limits: Default::default(),
            disk_cache_dir: None,
            resolver: None,
        };
        change(&mut config);
        let aggregator = Aggregator::install(&mut head, config);
        let target = head.into_delegate();
        let hooks = target.take_contributions().post_start_hooks;
        // All at once, since some hooks wait for what others do.
        let runs = hooks.into_iter().map(|h| h.run(HookContext { tasks: tasks.clone() }));
        for done in futures_util::future::join_all(runs).await {
            done.unwrap();
        }
        Self {
            api_services,
            services,
            slices,
            secrets,
            config_maps,
            aggregator,
            telemetry,
            head: target.unprotected_handler(),
            tasks,
        }
    }

    pub(crate) async fn send(&self, req: Request) -> (u16, String) {
        let response = self.head.clone().serve(req, alice()).await;
        (response.status().as_u16(), text(response).await)
    }

    /// Sends a request and returns the response without reading its body.
    pub(crate) async fn open(&self, req: Request) -> Response {
        self.head.clone().serve(req, alice()).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        self.send(get(path)).await
    }

    /// Sends a request and returns the response's headers.
    pub(crate) async fn headers(&self, req: Request) -> http::HeaderMap {
        self.head.clone().serve(req, alice()).await.headers().clone()
    }

    /// Whether the response has status 200 but its body breaks off.
    pub(crate) async fn cut_off(&self, path: &str) -> bool {
        let response = self.head.clone().serve(get(path), alice()).await;
        response.status() == 200 && response.into_body().collect(1 << 20).await.is_err()
    }

    /// The entry of a group in the aggregated discovery document.
    pub(crate) async fn aggregated(&self, group: &str) -> Value {
        let mut req = get("/apis");
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        req.headers_mut().insert("accept", accept.parse().unwrap());
        let document = crate::apimachinery::codec::json::decode(self.send(req).await.1.as_bytes()).unwrap();
        let found = document
            .get("items")
            .items()
            .iter()
            .find(|g| g.str_at(&["metadata", "name"]) == group);
        found.cloned().unwrap_or(Value::Null)
    }

    /// The Available condition as stored: `status/reason/message`.
    pub(crate) fn condition(&self, name: &str) -> String {
        let Some(object) = self.api_services.object(name) else {
            return "gone".into();
        };
        let conditions = object.at(&["status", "conditions"]).items().to_vec();
        conditions.first().map_or("none".into(), |c| {
            format!(
                "{}/{}/{}",
                c.str_at(&["status"]),
                c.str_at(&["reason"]),
                c.str_at(&["message"])
            )
        })
    }

    /// Polls `f` until it returns a value.
    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(&self, what: &str, f: impl Fn() -> F) -> T {
        let limit = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            if let Some(t) = f().await {
                return t;
            }
            assert!(tokio::time::Instant::now() < limit, "{what} did not come about");
            // On a paused clock this is what advances it, so that periodic work comes due.
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    pub(crate) async fn until_condition(&self, name: &str, wanted: &str) {
        self.until(wanted, || async { (self.condition(name) == wanted).then_some(()) })
            .await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.stop_signal().fire();
    }
}

/// An APIService `v1.<group>` for the Service `ns/ext`.
pub(crate) fn apiservice(group: &str, ca_pem: &str, port: u16) -> Value {
    use base64::Engine as _;
    let ca = base64::engine::general_purpose::STANDARD.encode(ca_pem);
    json!({"metadata": {"name": (format!("v1.{group}")), "uid": "u"},
           "spec": {"group": (group), "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
                    "caBundle": (ca), "service": {"namespace": "ns", "name": "ext", "port": (port)}}})
}
