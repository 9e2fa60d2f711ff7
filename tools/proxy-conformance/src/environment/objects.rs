//! The objects in the gateway: created before the first case, deleted after the last.

use super::{Environment, LIMITED, MEMBER, NAMESPACE, RBAC, SERVICES, SPECS, Via};
use base64::Engine as _;
use serde_json::{Value, json};

impl Environment {
    async fn create(&self, collection: &str, object: Value) -> Result<(), String> {
        match self.target.api("POST", collection, Some(&object)).await {
            Ok(_) | Err((409, _)) => Ok(()),
            Err((_, why)) => Err(why),
        }
    }

    pub(super) async fn make(&self) -> Result<(), String> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        self.create("/api/v1/namespaces", namespace).await?;
        self.roles().await?;
        self.empty_services().await?;
        for spec in SPECS {
            let Some(backend) = self.backends.get(spec.name) else {
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
        let groups: Vec<&String> = self.backends.values().map(|b| &b.group).collect();
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

    /// Creates the objects that lead to a backend; existing ones are kept.
    ///
    /// # Errors
    /// If the gateway refuses one.
    pub(crate) async fn register(&self, name: &str, group: &str, port: u16, verified: bool) -> Result<(), String> {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
        match self.options.via {
            Via::ExternalName => {
                let spec = json!({"type": "ExternalName", "externalName": self.host_of(name)});
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
        self.register_version(name, group, "v1", port, verified).await
    }

    /// Creates an APIService for another version on the Service of a backend.
    ///
    /// # Errors
    /// If the gateway refuses it.
    pub(crate) async fn register_version(
        &self,
        service: &str,
        group: &str,
        version: &str,
        port: u16,
        verified: bool,
    ) -> Result<(), String> {
        let mut spec = json!({"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"name": service, "namespace": NAMESPACE, "port": port}});
        if verified {
            spec["caBundle"] = base64::engine::general_purpose::STANDARD.encode(&self.bundle).into();
        } else {
            spec["insecureSkipTLSVerify"] = true.into();
        }
        let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")}, "spec": spec});
        self.create(SERVICES, object).await
    }

    /// Moves the endpoints of a backend to another port ([`Via::Endpoints`]).
    ///
    /// # Errors
    /// If the gateway refuses it.
    pub(crate) async fn listens_on(&self, name: &str, port: u16) -> Result<(), String> {
        let slice = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{name}");
        let patch = json!({"ports": [{"name": "https", "port": port, "protocol": "TCP"}]});
        let done = self.target.api("PATCH", &slice, Some(&patch)).await;
        done.map(drop).map_err(|(_, e)| e)
    }

    /// Deletes the objects that the run created.
    pub async fn clean_up(&self) {
        let delete = async |path: String| {
            // Objects that do not exist need not be deleted.
            let _ = self.target.api("DELETE", &path, None).await;
        };
        for (name, backend) in &self.backends {
            for version in ["v1", "v2"] {
                delete(format!("{SERVICES}/{version}.{}", backend.group)).await;
            }
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
}
