//! The environment of a run: scripted backends, and the objects in the gateway that lead to them.

mod egress;
mod objects;

pub use egress::Egress;

use crate::backend::{Backend, BackendHandle, CASE_HEADER, Script};
use crate::client::{Credentials, Http, Request, Response, Target};
use crate::pki::{Certificate, Pki};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The namespace of all created objects.
pub const NAMESPACE: &str = "proxy-conformance";
/// A group that may do everything in the groups of a run. Requests join it by impersonation.
pub const MEMBER: &str = "conformance-member";
/// A user that may `get` and `create` things in [`NAMESPACE`], and nothing else.
pub const LIMITED: &str = "conformance-limited";

/// How the gateway finds a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// A Service of type ExternalName.
    #[default]
    ExternalName,
    /// A headless Service and an EndpointSlice, for gateways with `--enable-aggregator-routing`.
    Endpoints,
}

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address that the backends listen on.
    pub listen: IpAddr,
    /// The name under which the gateway reaches them, or the address for [`Via::Endpoints`].
    pub host: String,
    /// How the gateway finds them.
    pub via: Via,
    /// The backends to start; empty for all.
    pub backends: Vec<&'static str>,
    /// Whether the gateway passes redirects on.
    pub redirects_passed: bool,
    /// The credentials of a front proxy that the gateway trusts.
    pub front_proxy: Option<Credentials>,
    /// The listener for the proxy that the gateway was configured with (`HTTPS_PROXY`).
    pub egress: Option<Arc<TcpListener>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: IpAddr::from([127, 0, 0, 1]),
            host: "localhost".into(),
            via: Via::default(),
            backends: vec![],
            redirects_passed: false,
            front_proxy: None,
            egress: None,
        }
    }
}

/// The specification of a backend.
struct Spec {
    name: &'static str,
    alpn: &'static [&'static str],
    certificate: Certificate,
    verified: bool,
    clients: bool,
    /// The expected `Available` condition of its APIService.
    available: bool,
}

const fn healthy(name: &'static str, alpn: &'static [&'static str]) -> Spec {
    Spec {
        name,
        alpn,
        certificate: Certificate::Good,
        verified: true,
        clients: false,
        available: true,
    }
}

const fn distrusted(name: &'static str, certificate: Certificate) -> Spec {
    Spec {
        certificate,
        available: false,
        ..healthy(name, TWO)
    }
}

const TUNNELLED: &str = "tunnelled";
const ONE: &[&str] = &["http/1.1"];
const TWO: &[&str] = &["h2", "http/1.1"];

const SPECS: &[Spec] = &[
    healthy("h1", ONE),
    healthy("h2", TWO),
    // Cases with faults use backends of their own, so that no other case uses a dying connection.
    healthy("f1", ONE),
    healthy("f2", TWO),
    // So do cases that take seconds, and cases about the gateway's own requests.
    healthy("slow", TWO),
    healthy("own-requests", TWO),
    healthy("moving", ONE),
    healthy("quiet", TWO),
    // Reachable through the egress proxy only.
    healthy(TUNNELLED, ONE),
    Spec {
        certificate: Certificate::OtherCa,
        verified: false,
        ..healthy("unverified", TWO)
    },
    Spec {
        clients: true,
        ..healthy("certified", TWO)
    },
    distrusted("other-ca", Certificate::OtherCa),
    distrusted("expired", Certificate::Expired),
    distrusted("other-name", Certificate::OtherName),
    distrusted("cn-only", Certificate::CommonNameOnly),
];

/// A gateway with backends behind it.
pub struct Environment {
    /// The gateway.
    pub target: Target,
    /// The gateway, called as a front proxy that it trusts.
    pub front_proxy: Option<Target>,
    /// The gateway's egress proxy.
    pub egress: Option<Egress>,
    options: Options,
    bundle: String,
    backends: BTreeMap<&'static str, Backend>,
    cases: AtomicU64,
}

/// A property of the gateway or its configuration that a case requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It refuses redirects (the default).
    RedirectsRefused,
    /// It passes redirects on (`--redirects=passed`).
    RedirectsPassed,
    /// It trusts a front proxy whose certificate is available (`--front-proxy-certificate`).
    FrontProxy,
}

/// The context of a running case.
pub struct Scene<'a> {
    /// The environment.
    pub environment: &'a Environment,
    /// The HTTP version towards the gateway.
    pub http: Http,
    /// The backend.
    pub backend: &'a Backend,
}

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

impl Environment {
    /// Starts the backends, creates the objects and waits until the gateway has checked every backend.
    ///
    /// # Errors
    /// If the gateway refuses an object, or a condition is not as expected within a minute.
    pub async fn try_new(url: &str, trusted: &str, who: &Credentials, options: Options) -> Result<Self, String> {
        let target = Target::try_new(url, trusted, who)?;
        let front_proxy = options.front_proxy.as_ref();
        let front_proxy = front_proxy.map(|who| Target::try_new(url, trusted, who)).transpose()?;
        let egress = match (&options.egress, options.via) {
            (Some(listener), Via::ExternalName) => Some(Egress::start(listener, options.listen)?),
            _ => None,
        };
        let pki = Pki::default();
        let mut backends = BTreeMap::new();
        let published = front_proxy_ca(&target).await;
        for spec in SPECS {
            let is_wanted = options.backends.is_empty() || options.backends.contains(&spec.name);
            if !is_wanted || (spec.name == TUNNELLED && egress.is_none()) {
                continue;
            }
            let name = format!("{}.{NAMESPACE}.svc", spec.name);
            let clients = match (spec.clients, &published) {
                (false, _) => None,
                (true, Some(pem)) => Some(pem.as_str()),
                // Without a published CA the backend cannot verify a client certificate, so it is left out.
                (true, None) => continue,
            };
            let tls = pki.server(&name, spec.certificate, spec.alpn, clients)?;
            let group = format!("{}.conformance.example.com", spec.name);
            let backend = Backend::start(&group, tls, options.listen).await;
            backends.insert(spec.name, backend.map_err(|e| e.to_string())?);
        }
        let environment = Self {
            target,
            front_proxy,
            egress,
            options,
            bundle: pki.bundle.clone(),
            backends,
            cases: AtomicU64::new(1),
        };
        environment.clean_up().await;
        environment.make().await?;
        environment.wait_for_conditions().await?;
        Ok(environment)
    }

    /// The backend with this name.
    pub fn backend(&self, name: &str) -> Option<&Backend> {
        self.backends.get(name)
    }

    fn host_of(&self, backend: &str) -> &str {
        if backend == TUNNELLED {
            egress::HOST
        } else {
            &self.options.host
        }
    }

    /// The CA of the backends, which only the APIServices contain.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// How the gateway finds backends.
    pub fn via(&self) -> Via {
        self.options.via
    }

    /// Whether the gateway meets a requirement.
    pub fn meets(&self, need: Need) -> bool {
        match need {
            Need::RedirectsRefused => !self.options.redirects_passed,
            Need::RedirectsPassed => self.options.redirects_passed,
            Need::FrontProxy => self.front_proxy.is_some(),
        }
    }

    /// All requests that reached a backend, except the gateway's own.
    pub fn requests(&self) -> Vec<crate::backend::ReceivedRequest> {
        self.backends.values().flat_map(Backend::requests).collect()
    }

    /// The backend's `host:port` as the gateway uses it.
    pub fn host(&self, backend: &Backend) -> String {
        let tunnelled = self.backend(TUNNELLED).is_some_and(|t| std::ptr::eq(t, backend));
        let host = self.host_of(if tunnelled { TUNNELLED } else { "" });
        if host.contains(':') {
            format!("[{host}]:{}", backend.port)
        } else {
            format!("{host}:{}", backend.port)
        }
    }

    /// `status/reason/message` of an APIService's condition; empty if there is none yet.
    ///
    /// # Errors
    /// If the APIService cannot be read.
    pub async fn condition(&self, group: &str) -> Result<[String; 3], String> {
        let path = format!("{SERVICES}/v1.{group}");
        let object = self.target.api("GET", &path, None).await.map_err(|(_, e)| e)?;
        let none = vec![];
        let all = object["status"]["conditions"].as_array().unwrap_or(&none);
        let found = all.iter().find(|c| c["type"] == "Available");
        Ok(["status", "reason", "message"].map(|key| {
            let text = found.and_then(|c| c[key].as_str());
            text.unwrap_or_default().to_owned()
        }))
    }

    /// Changes an APIService by a merge patch.
    ///
    /// # Errors
    /// If the patch is refused.
    pub async fn patch(&self, group: &str, patch: Value) -> Result<(), String> {
        let path = format!("{SERVICES}/v1.{group}");
        let done = self.target.api("PATCH", &path, Some(&patch)).await;
        done.map(|_| ()).map_err(|(_, e)| e)
    }

    /// Polls until `holds` returns true, for at most a minute.
    ///
    /// # Errors
    /// `what`, if it never does.
    pub async fn until<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds().await {
            if Instant::now() > end {
                return Err(format!("{what} (waited a minute)"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until all conditions are as expected and requests are routed accordingly.
    async fn wait_for_conditions(&self) -> Result<(), String> {
        for spec in SPECS {
            let Some(backend) = self.backends.get(spec.name) else {
                continue;
            };
            let status = if spec.available { "True" } else { "False" };
            let what = format!("v1.{} becomes Available={status}", backend.group);
            let reached = self.until(&what, || async {
                let is = self.condition(&backend.group).await;
                is.is_ok_and(|[is, ..]| is == status)
            });
            reached.await?;
            if spec.available {
                let request = Request {
                    method: "GET".into(),
                    target: format!("/apis/{}/v1/warm", backend.group),
                    ..Request::default()
                };
                let what = format!("requests of {} are routed", backend.group);
                let routed = || async {
                    let response = self.target.exchange(Http::Http1, &request).await;
                    response.is_ok_and(|g| g.status == 200)
                };
                self.until(&what, routed).await?;
            }
        }
        Ok(())
    }

    /// A number that no other case uses.
    pub fn next_case(&self) -> String {
        self.cases.fetch_add(1, Ordering::Relaxed).to_string()
    }
}

/// The CA by which backends verify the gateway.
async fn front_proxy_ca(target: &Target) -> Option<String> {
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let map = target.api("GET", path, None).await.ok()?;
    map["data"]["requestheader-client-ca-file"].as_str().map(str::to_owned)
}

impl Scene<'_> {
    /// Waits until the backend's APIService is available; false if it does not become so within a minute.
    pub(crate) async fn is_available_again(&self) -> bool {
        let group = &self.backend.group;
        let is_available = || async {
            let condition = self.environment.condition(group).await;
            condition.is_ok_and(|[status, ..]| status == "True")
        };
        self.environment.until("available again", is_available).await.is_ok()
    }

    /// Replaces the placeholders in a text of a case.
    pub fn fill(&self, text: &str) -> String {
        text.replace("{base}", &format!("/apis/{}/v1", self.backend.group))
            .replace("{group}", &self.backend.group)
            .replace("{host}", &self.environment.host(self.backend))
            .replace("{gateway}", &self.environment.target.authority)
            .replace("{port}", &self.backend.port.to_string())
    }

    /// A request of this case.
    pub fn request(&self, method: &str, target: &str) -> Request {
        Request {
            method: method.into(),
            target: self.fill(target),
            headers: vec![(CASE_HEADER.into(), self.environment.next_case())],
            ..Request::default()
        }
    }

    /// Arms the backend with a script.
    pub fn script_backend(&self, script: Script) -> BackendHandle {
        self.backend.arm([script])
    }

    /// Sends a request to the gateway.
    ///
    /// # Errors
    /// If there is no response.
    pub async fn exchange(&self, request: &Request) -> Result<Response, String> {
        self.environment.target.exchange(self.http, request).await
    }
}
