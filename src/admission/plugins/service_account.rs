//! ServiceAccount: runs new pods under an existing service account, mounts its token and applies its image
//! pull secrets. As upstream's `plugin/pkg/admission/serviceaccount`.

use super::pods::{elements_mut, is_mirror, projects, push, references_secrets};
use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::field::quote;
use crate::apimachinery::names;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::validation::path_segment_name;
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::HashSet;
use std::time::Duration;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Number of lookups of the default account, which a controller creates shortly after its namespace.
const ATTEMPTS: usize = 10;
// The middle of upstream's random 100 to 200 ms.
const PAUSE: Duration = Duration::from_millis(150);

pub(crate) struct ServiceAccount {
    cluster: ObjectLookup,
    /// The projected token volume, without a name.
    volume: Value,
}

impl ServiceAccount {
    /// Reads service accounts from `cluster`.
    pub(crate) fn new(cluster: ObjectLookup) -> Self {
        // The odd 3607 seconds are upstream's mark of injected volumes: token requests with this duration get a longer
        // token, for clients that never reload it.
        let volume = crate::json!({"projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
            ]}},
        ]}});
        Self { cluster, volume }
    }

    async fn account(&self, attributes: &Attributes, pod: &Value) -> Result<Value> {
        let (namespace, name) = (&*attributes.namespace, account_name(pod));
        let refused = |why: &str| {
            let why = format!("error looking up service account {namespace}/{name}: {why}");
            forbidden(attributes, pod, why)
        };
        // Upstream's client does not send a request with such a name.
        let messages = path_segment_name(name);
        if !messages.is_empty() {
            let why = format!("invalid resource name {}: [{}]", quote(name), messages.join(" "));
            return Err(refused(&why));
        }
        for attempt in 1.. {
            let found = self.cluster.get_cached("", "serviceaccounts", namespace, name).await;
            match found {
                Ok(Some(account)) => return Ok(account),
                // The controller may not have created it yet.
                Ok(None) if name == "default" && attempt < ATTEMPTS => tokio::time::sleep(PAUSE).await,
                Ok(None) => break,
                Err(e) => return Err(refused(&e.message)),
            }
        }
        Err(refused(&format!("serviceaccount {} not found", quote(name))))
    }

    fn mount(&self, pod: &mut Value) {
        let volumes = pod.at(&["spec", "volumes"]).items().iter();
        // As upstream, a volume with this name prefix is reused, whoever added it.
        let given = volumes.map(element_name).find(|name| name.starts_with(VOLUME));
        let has_volume = given.is_some();
        let name = given.map_or_else(|| names::generate(VOLUME), str::to_owned);
        let mut needs_volume = false;
        for list in ["initContainers", "containers"] {
            for container in elements_mut(pod, list) {
                let mounts = container.get("volumeMounts").items();
                // The container brings credentials of its own.
                if mounts.iter().any(|m| m.str_at(&["mountPath"]) == MOUNT_PATH) {
                    continue;
                }
                let mut mount = Value::object();
                mount.set(&["mountPath"], MOUNT_PATH);
                mount.set(&["name"], name.as_str());
                mount.set(&["readOnly"], true);
                push(container, "volumeMounts", mount);
                needs_volume = true;
            }
        }
        if needs_volume
            && !has_volume
            && let Some(spec) = pod.at_mut(&["spec"])
        {
            let mut volume = self.volume.clone();
            volume.set(&["name"], name);
            push(spec, "volumes", volume);
        }
    }
}

/// The `name` of a list element.
fn element_name(element: &Value) -> &str {
    element.str_at(&["name"])
}

fn account_name(pod: &Value) -> &str {
    pod.str_at(&["spec", "serviceAccountName"])
}

fn mounts_token(account: &Value, pod: &Value) -> bool {
    let automount = |v: &Value| v.get("automountServiceAccountToken").as_bool();
    automount(pod.get("spec"))
        .or_else(|| automount(account))
        .unwrap_or(true)
}

/// Parses the annotation like Go's `strconv.ParseBool`; invalid values are false.
fn enforces(account: &Value) -> bool {
    let annotation = account.annotation(ENFORCE);
    annotation.is_some_and(|v| ["1", "t", "T", "true", "TRUE", "True"].contains(&v))
}

fn names_in<'a>(account: &'a Value, list: &str) -> HashSet<&'a str> {
    account.get(list).items().iter().map(element_name).collect()
}

/// A pod uses a secret that its service account does not list. Worded as upstream.
#[derive(Debug, thiserror::Error)]
#[error("{using} is not allowed because service account {account} does not reference that {list}")]
struct NotReferenced {
    /// The kind and name of the user of the Secret.
    using: String,
    account: String,
    /// The field of the account that must list it: `secret` or `imagePullSecret`.
    list: &'static str,
}

impl NotReferenced {
    fn secret(using: String, account: &Value) -> Self {
        Self {
            using,
            account: account.name().to_owned(),
            list: "secret",
        }
    }
}

/// Rejects containers whose environment refers to a secret that the account does not list.
fn environment(pod: &Value, list: &str, what: &str, account: &Value) -> std::result::Result<(), NotReferenced> {
    let known = names_in(account, "secrets");
    for container in pod.at(&["spec", list]).items() {
        let check = |secret: &Value, by: &str| {
            let name = element_name(secret);
            if secret.is_null() || known.contains(name) {
                return Ok(());
            }
            let container = element_name(container);
            let using = format!("{what} {container} with {by} referencing secret.secretName=\"{name}\"");
            Err(NotReferenced::secret(using, account))
        };
        for env in container.get("env").items() {
            check(
                env.at(&["valueFrom", "secretKeyRef"]),
                &format!("envVar {}", element_name(env)),
            )?;
        }
        for env in container.get("envFrom").items() {
            check(env.get("secretRef"), "envFrom")?;
        }
    }
    Ok(())
}

/// Rejects pods that use secrets that the account does not list.
fn mountable(pod: &Value, account: &Value) -> std::result::Result<(), NotReferenced> {
    let known = names_in(account, "secrets");
    for volume in pod.at(&["spec", "volumes"]).items() {
        let secret = volume.get("secret");
        let name = secret.str_at(&["secretName"]);
        if !secret.is_null() && !known.contains(name) {
            let using = format!("volume with secret.secretName=\"{name}\"");
            return Err(NotReferenced::secret(using, account));
        }
    }
    environment(pod, "initContainers", "init container", account)?;
    environment(pod, "containers", "container", account)?;
    let known = names_in(account, "imagePullSecrets");
    for (i, secret) in pod.at(&["spec", "imagePullSecrets"]).items().iter().enumerate() {
        let name = element_name(secret);
        if !known.contains(name) {
            return Err(NotReferenced {
                using: format!("imagePullSecrets[{i}].name=\"{name}\""),
                account: account.name().to_owned(),
                list: "imagePullSecret",
            });
        }
    }
    Ok(())
}

/// Rejects mirror pods that refer to API objects: a kubelet creates them itself and could thereby gain access
/// to those objects.
fn check_mirror(attributes: &Attributes, pod: &Value) -> Result<()> {
    let why = if !account_name(pod).is_empty() {
        "a mirror pod may not reference service accounts"
    } else if references_secrets(pod) {
        "a mirror pod may not reference secrets"
    } else if projects(pod, "serviceAccountToken") {
        "a mirror pod may not use ServiceAccountToken volume projections"
    } else {
        return Ok(());
    };
    Err(forbidden(attributes, pod, why))
}

#[async_trait]
impl Admission for ServiceAccount {
    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.is_for("", "pods")
            && match attributes.operation {
                Operation::Create => attributes.subresource.is_empty(),
                Operation::Update => attributes.subresource == "ephemeralcontainers",
                _ => false,
            }
    }

    async fn mutate(&self, attributes: &Attributes, pod: &mut Value) -> Result<()> {
        // Ephemeral containers are only validated: a running pod's volumes cannot change.
        if attributes.operation == Operation::Update {
            return Ok(());
        }
        if is_mirror(pod) {
            // Mirror pods get no account: the kubelet runs them without asking the API server.
            return check_mirror(attributes, pod);
        }
        if account_name(pod).is_empty() {
            pod.set(&["spec", "serviceAccountName"], "default");
            // The deprecated alias, which old clients read.
            pod.set(&["spec", "serviceAccount"], "default");
        }
        let account = self.account(attributes, pod).await?;
        if mounts_token(&account, pod) {
            self.mount(pod);
        }
        let secrets = account.get("imagePullSecrets");
        // All or nothing: secrets in the pod replace those of the account.
        if !secrets.items().is_empty() && pod.at(&["spec", "imagePullSecrets"]).items().is_empty() {
            pod.set(&["spec", "imagePullSecrets"], secrets.clone());
        }
        // As upstream, which calls its validation from its mutation.
        check(attributes, pod, &account)
    }

    async fn validate(&self, attributes: &Attributes, pod: &Value) -> Result<()> {
        let update = attributes.operation == Operation::Update;
        if !update && is_mirror(pod) {
            return check_mirror(attributes, pod);
        }
        let account = match account_name(pod) {
            "" => {
                let why = format!(
                    "no service account specified for pod {}/{}",
                    attributes.namespace,
                    pod.name()
                );
                return Err(forbidden(attributes, pod, why));
            }
            _ => self.account(attributes, pod).await?,
        };
        if !update {
            return check(attributes, pod, &account);
        }
        if !enforces(&account) {
            return Ok(());
        }
        let refused = environment(pod, "ephemeralContainers", "ephemeral container", &account);
        refused.map_err(|e| forbidden(attributes, pod, e.to_string()))
    }
}

fn check(attributes: &Attributes, pod: &Value, account: &Value) -> Result<(), Status> {
    if !enforces(account) {
        return Ok(());
    }
    mountable(pod, account).map_err(|e| forbidden(attributes, pod, e.to_string()))
}

#[cfg(test)]
mod tests;
