//! What a run makes: scripted backends, and at the gateway the objects that lead to them.

use crate::backend::{Backend, ROW, Script, Stage};
use crate::client::{Ask, Credentials, Got, Http, Target};
use crate::pki::{Certificate, Pki};
use base64::Engine as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The namespace of everything that is made.
pub const NAMESPACE: &str = "proxy-conformance";
/// May do everything in the groups of a run, when impersonated with the group of the same name.
pub const MEMBER: &str = "conformance-member";
/// May `get` and `create` things in [`NAMESPACE`], and nothing else.
pub const LIMITED: &str = "conformance-limited";

/// How the gateway is told where a backend is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// A Service of type ExternalName.
    #[default]
    ExternalName,
    /// A headless Service and an EndpointSlice, for gateways with `--enable-aggregator-routing`.
    Endpoints,
}

/// Of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the backends listen.
    pub listen: IpAddr,
    /// What the gateway reaches them by: a name, or an address for [`Via::Endpoints`].
    pub host: String,
    /// How it is told.
    pub via: Via,
    /// The backends that are started; all of them, where it is empty.
    pub places: Vec<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: IpAddr::from([127, 0, 0, 1]),
            host: "localhost".into(),
            via: Via::default(),
            places: vec![],
        }
    }
}

/// A backend to be.
struct Spec {
    name: &'static str,
    alpn: &'static [&'static str],
    certificate: Certificate,
    verified: bool,
    clients: bool,
    /// What the APIService's condition is to say.
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

const ONE: &[&str] = &["http/1.1"];
const TWO: &[&str] = &["h2", "http/1.1"];

const SPECS: &[Spec] = &[
    healthy("h1", ONE),
    healthy("h2", TWO),
    // Faults have backends of their own, so that no other row meets a dying connection.
    healthy("f1", ONE),
    healthy("f2", TWO),
    // So do rows that take seconds, and those about what the gateway asks for itself.
    healthy("slow", TWO),
    healthy("house", TWO),
    healthy("moving", ONE),
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
pub struct World {
    /// The gateway.
    pub target: Target,
    options: Options,
    bundle: String,
    places: BTreeMap<&'static str, Backend>,
    rows: AtomicU64,
}

/// What a row runs in.
pub struct Scene<'a> {
    /// Everything.
    pub world: &'a World,
    /// The version of HTTP towards the gateway.
    pub front: Http,
    /// The backend.
    pub backend: &'a Backend,
}

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

impl World {
    /// Starts the backends, makes the objects and waits until the gateway has judged every backend.
    ///
    /// # Errors
    /// Where the gateway refuses, or judges otherwise within a minute.
    pub async fn try_new(url: &str, trusted: &str, who: &Credentials, options: Options) -> Result<Self, String> {
        let target = Target::try_new(url, trusted, who)?;
        let pki = Pki::default();
        let mut places = BTreeMap::new();
        let front_proxy = front_proxy_ca(&target).await;
        for spec in SPECS {
            if !options.places.is_empty() && !options.places.contains(&spec.name) {
                continue;
            }
            let name = format!("{}.{NAMESPACE}.svc", spec.name);
            let clients = match (spec.clients, &front_proxy) {
                (false, _) => None,
                (true, Some(pem)) => Some(pem.as_str()),
                // Without a published CA there is nobody to ask for a certificate of.
                (true, None) => continue,
            };
            let tls = pki.server(&name, spec.certificate, spec.alpn, clients)?;
            let group = format!("{}.conformance.example.com", spec.name);
            let backend = Backend::start(&group, tls, options.listen).await;
            places.insert(spec.name, backend.map_err(|e| e.to_string())?);
        }
        let world = Self {
            target,
            options,
            bundle: pki.bundle.clone(),
            places,
            rows: AtomicU64::new(1),
        };
        world.clean_up().await;
        world.make().await?;
        world.judged().await?;
        Ok(world)
    }

    /// A backend.
    pub fn place(&self, name: &str) -> Option<&Backend> {
        self.places.get(name)
    }

    /// Every request that reached a backend, but for the gateway's own.
    pub fn journal(&self) -> Vec<crate::backend::Seen> {
        self.places.values().flat_map(Backend::journal).collect()
    }

    /// Its `host:port` as the gateway reaches it.
    pub fn host(&self, backend: &Backend) -> String {
        let host = &self.options.host;
        if host.contains(':') {
            format!("[{host}]:{}", backend.port)
        } else {
            format!("{host}:{}", backend.port)
        }
    }

    async fn create(&self, collection: &str, object: Value) -> Result<(), String> {
        match self.target.api("POST", collection, Some(&object)).await {
            Ok(_) | Err((409, _)) => Ok(()),
            Err((_, why)) => Err(why),
        }
    }

    async fn make(&self) -> Result<(), String> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        self.create("/api/v1/namespaces", namespace).await?;
        self.roles().await?;
        self.empty_services().await?;
        for spec in SPECS {
            let Some(backend) = self.places.get(spec.name) else {
                continue;
            };
            self.register(spec.name, &backend.group, backend.port, spec.verified)
                .await?;
        }
        Ok(())
    }

    /// Services with a cluster IP that lead nowhere: one without slices, one without a ready endpoint.
    async fn empty_services(&self) -> Result<(), String> {
        let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
        for name in ["sliceless", "unready"] {
            let spec = json!({"ports": [{"name": "https", "port": 443}]});
            let metadata = json!({"name": name, "namespace": NAMESPACE});
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
            self.create(&services, service).await?;
        }
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "unready", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": "unready"}},
            "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}]});
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
        self.create(&slices, slice).await
    }

    async fn roles(&self) -> Result<(), String> {
        let groups: Vec<&String> = self.places.values().map(|b| &b.group).collect();
        let paths: Vec<String> = groups.iter().map(|g| format!("/apis/{g}/*")).collect();
        let subject =
            |kind: &str, name: &str| json!([{"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}]);
        let reference =
            |kind: &str, name: &str| json!({"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"});
        let member = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": MEMBER},
            "rules": [{"apiGroups": groups, "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": paths, "verbs": ["*"]}]});
        self.create(&format!("{RBAC}/clusterroles"), member).await?;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": MEMBER}, "roleRef": reference("ClusterRole", MEMBER), "subjects": subject("Group", MEMBER)});
        self.create(&format!("{RBAC}/clusterrolebindings"), binding).await?;
        let limited = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": LIMITED, "namespace": NAMESPACE},
            "rules": [{"apiGroups": groups, "resources": ["things"], "verbs": ["get", "create"]}]});
        self.create(&format!("{RBAC}/namespaces/{NAMESPACE}/roles"), limited)
            .await?;
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": LIMITED, "namespace": NAMESPACE}, "roleRef": reference("Role", LIMITED),
            "subjects": subject("User", LIMITED)});
        self.create(&format!("{RBAC}/namespaces/{NAMESPACE}/rolebindings"), binding)
            .await
    }

    async fn register(&self, name: &str, group: &str, port: u16, verified: bool) -> Result<(), String> {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
        match self.options.via {
            Via::ExternalName => {
                let spec = json!({"type": "ExternalName", "externalName": self.options.host});
                let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
                self.create(&services, service).await?;
            }
            Via::Endpoints => {
                let spec = json!({"clusterIP": "None", "ports": [{"name": "https", "port": port, "targetPort": port}]});
                let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
                self.create(&services, service).await?;
                let family = if self.options.host.contains(':') {
                    "IPv6"
                } else {
                    "IPv4"
                };
                let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
                    "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name}},
                    "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
                    "endpoints": [{"addresses": [self.options.host], "conditions": {"ready": true}}]});
                let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
                self.create(&slices, slice).await?;
            }
        }
        let mut spec = json!({"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"name": name, "namespace": NAMESPACE, "port": port}});
        if verified {
            spec["caBundle"] = base64::engine::general_purpose::STANDARD.encode(&self.bundle).into();
        } else {
            spec["insecureSkipTLSVerify"] = true.into();
        }
        let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("v1.{group}")}, "spec": spec});
        self.create(SERVICES, object).await
    }

    /// `status/reason/message` of an APIService's condition; empty where there is none yet.
    ///
    /// # Errors
    /// Where it cannot be read.
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
    /// Where that is refused.
    pub async fn patch(&self, group: &str, patch: Value) -> Result<(), String> {
        let path = format!("{SERVICES}/v1.{group}");
        let done = self.target.api("PATCH", &path, Some(&patch)).await;
        done.map(|_| ()).map_err(|(_, e)| e)
    }

    /// Waits until `holds`, for at most a minute.
    ///
    /// # Errors
    /// Where it never does: `what`.
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

    /// The verdicts are there, and requests are routed by them.
    async fn judged(&self) -> Result<(), String> {
        for spec in SPECS {
            let Some(backend) = self.places.get(spec.name) else {
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
                let ask = Ask {
                    method: "GET".into(),
                    target: format!("/apis/{}/v1/warm", backend.group),
                    ..Ask::default()
                };
                let what = format!("requests of {} are routed", backend.group);
                let routed = || async {
                    let got = self.target.exchange(Http::One, &ask).await;
                    got.is_ok_and(|g| g.status == 200)
                };
                self.until(&what, routed).await?;
            }
        }
        Ok(())
    }

    /// Deletes what a run has made.
    pub async fn clean_up(&self) {
        let delete = async |path: String| {
            // What is not there need not go.
            let _ = self.target.api("DELETE", &path, None).await;
        };
        for (name, backend) in &self.places {
            delete(format!("{SERVICES}/v1.{}", backend.group)).await;
            delete(format!("/api/v1/namespaces/{NAMESPACE}/services/{name}")).await;
            if self.options.via == Via::Endpoints {
                delete(format!(
                    "/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{name}"
                ))
                .await;
            }
        }
        for name in ["sliceless", "unready"] {
            delete(format!("/api/v1/namespaces/{NAMESPACE}/services/{name}")).await;
            delete(format!(
                "/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{name}"
            ))
            .await;
        }
        delete(format!("{RBAC}/clusterroles/{MEMBER}")).await;
        delete(format!("{RBAC}/clusterrolebindings/{MEMBER}")).await;
        delete(format!("{RBAC}/namespaces/{NAMESPACE}/roles/{LIMITED}")).await;
        delete(format!("{RBAC}/namespaces/{NAMESPACE}/rolebindings/{LIMITED}")).await;
    }

    /// A number that no other row has.
    pub fn next_row(&self) -> String {
        self.rows.fetch_add(1, Ordering::Relaxed).to_string()
    }
}

/// The CA that backends know the gateway by.
async fn front_proxy_ca(target: &Target) -> Option<String> {
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let map = target.api("GET", path, None).await.ok()?;
    map["data"]["requestheader-client-ca-file"].as_str().map(str::to_owned)
}

impl Scene<'_> {
    /// A text of a row, with what it stands for.
    pub fn fill(&self, text: &str) -> String {
        text.replace("{base}", &format!("/apis/{}/v1", self.backend.group))
            .replace("{group}", &self.backend.group)
            .replace("{host}", &self.world.host(self.backend))
            .replace("{gateway}", &self.world.target.authority)
            .replace("{port}", &self.backend.port.to_string())
    }

    /// A request of this row.
    pub fn ask(&self, method: &str, target: &str) -> Ask {
        Ask {
            method: method.into(),
            target: self.fill(target),
            headers: vec![(ROW.into(), self.world.next_row())],
            ..Ask::default()
        }
    }

    /// Arms the backend.
    pub fn stage(&self, script: Script) -> Stage {
        self.backend.arm([script])
    }

    /// Asks the gateway.
    ///
    /// # Errors
    /// Where there is no answer.
    pub async fn exchange(&self, ask: &Ask) -> Result<Got, String> {
        self.world.target.exchange(self.front, ask).await
    }
}
