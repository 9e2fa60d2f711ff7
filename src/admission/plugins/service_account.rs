//! ServiceAccount: runs new pods under an existing service account, mounts its token and applies its image pull
//! secrets. As upstream's `plugin/pkg/admission/serviceaccount`.

use super::pods::{elements_mut, is_mirror, projects, push, references_secrets};
use crate::admission::{Admission, Attributes, ObjectLookup, Operation, forbidden};
use crate::apimachinery::names;
use crate::apimachinery::object::ObjectView;
use crate::apimachinery::status::{Result, Status};
use crate::apimachinery::value::Value;
use async_trait::async_trait;
use std::collections::HashSet;
use std::time::Duration;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

/// Number of lookups of the default account, which a controller creates shortly after its namespace.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(150);

/// The ServiceAccount plugin.
pub struct ServiceAccount {
    cluster: ObjectLookup,
    /// The projected token volume, without a name.
    volume: Value,
}

impl ServiceAccount {
    /// Reads service accounts from `cluster`.
    pub fn new(cluster: ObjectLookup) -> Self {
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
        for attempt in 1.. {
            let found = self.cluster.get_cached("", "serviceaccounts", namespace, name).await;
            match found {
                Ok(Some(account)) => return Ok(account),
                // The controller may not have created it yet.
                Ok(None) if name == "default" && attempt < ATTEMPTS => tokio::time::sleep(PAUSE).await,
                Ok(None) => break,
                Err(e) => {
                    let why = format!("error looking up service account {namespace}/{name}: {}", e.message);
                    return Err(forbidden(attributes, pod, why));
                }
            }
        }
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        Err(forbidden(attributes, pod, why))
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

/// Rejects containers whose environment refers to a secret that the account does not list.
fn environment(pod: &Value, list: &str, what: &str, account: &Value) -> std::result::Result<(), String> {
    let known = names_in(account, "secrets");
    for container in pod.at(&["spec", list]).items() {
        let check = |secret: &Value, by: &str| {
            let name = element_name(secret);
            if secret.is_null() || known.contains(name) {
                return Ok(());
            }
            Err(format!(
                "{what} {} with {by} referencing secret.secretName=\"{name}\" is not allowed because service account {} \
                 does not reference that secret",
                element_name(container),
                account.name()
            ))
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
fn mountable(pod: &Value, account: &Value) -> std::result::Result<(), String> {
    let known = names_in(account, "secrets");
    for volume in pod.at(&["spec", "volumes"]).items() {
        let secret = volume.get("secret");
        let name = secret.str_at(&["secretName"]);
        if !secret.is_null() && !known.contains(name) {
            return Err(format!(
                "volume with secret.secretName=\"{name}\" is not allowed because service account {} does not reference \
                 that secret",
                account.name()
            ));
        }
    }
    environment(pod, "initContainers", "init container", account)?;
    environment(pod, "containers", "container", account)?;
    let known = names_in(account, "imagePullSecrets");
    for (i, secret) in pod.at(&["spec", "imagePullSecrets"]).items().iter().enumerate() {
        let name = element_name(secret);
        if !known.contains(name) {
            return Err(format!(
                "imagePullSecrets[{i}].name=\"{name}\" is not allowed because service account {} does not reference that \
                 imagePullSecret",
                account.name()
            ));
        }
    }
    Ok(())
}

/// Rejects mirror pods that refer to API objects: a kubelet creates them itself and could thereby gain access to those
/// objects.
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
        if attributes.operation == Operation::Update {
            return Ok(());
        }
        if is_mirror(pod) {
            return check_mirror(attributes, pod);
        }
        if account_name(pod).is_empty() {
            pod.set(&["spec", "serviceAccountName"], "default");
            pod.set(&["spec", "serviceAccount"], "default");
        }
        let account = self.account(attributes, pod).await?;
        if mounts_token(&account, pod) {
            self.mount(pod);
        }
        let secrets = account.get("imagePullSecrets");
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
        refused.map_err(|why| forbidden(attributes, pod, why))
    }
}

fn check(attributes: &Attributes, pod: &Value, account: &Value) -> Result<(), Status> {
    if !enforces(account) {
        return Ok(());
    }
    mountable(pod, account).map_err(|why| forbidden(attributes, pod, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::{ask, cluster, pod, request};
    use crate::json;

    fn plugin() -> ServiceAccount {
        let account = |name: &str, more: Value| {
            let mut v = json!({"metadata": {"name": (name), "namespace": "ns"}});
            for (key, value) in more.as_object().into_iter().flat_map(|m| m.iter()) {
                v.set(&[key], value.clone());
            }
            v
        };
        let mut strict = account("strict", json!({"secrets": [{"name": "known"}]}));
        strict.set(&["metadata", "annotations", ENFORCE], "true");
        ServiceAccount::new(cluster(&[(
            "",
            "serviceaccounts",
            vec![
                account("default", json!({"imagePullSecrets": [{"name": "pull"}]})),
                account("silent", json!({"automountServiceAccountToken": false})),
                strict,
            ],
        )]))
    }

    fn create() -> Attributes {
        request(Operation::Create, "", "pods", "p")
    }

    #[tokio::test]
    async fn a_plain_pod_gets_the_default_account_with_token_and_pull_secrets() {
        let given = pod(json!({"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]}));
        let got = ask(&plugin(), &create(), &given).await.unwrap();
        assert_eq!(account_name(&got), "default");
        assert_eq!(got.str_at(&["spec", "serviceAccount"]), "default");
        let name = got.at(&["spec", "volumes"]).items()[0].str_at(&["name"]).to_owned();
        assert!(name.starts_with(VOLUME) && name.len() == VOLUME.len() + 5);
        for list in ["containers", "initContainers"] {
            let mount = &got.at(&["spec", list]).items()[0].get("volumeMounts").items()[0];
            assert_eq!(
                *mount,
                json!({"name": (name.as_str()), "mountPath": (MOUNT_PATH), "readOnly": true})
            );
        }
        assert_eq!(*got.at(&["spec", "imagePullSecrets"]), json!([{"name": "pull"}]));
    }

    #[tokio::test]
    async fn the_pods_automount_setting_overrides_the_accounts() {
        let silent = pod(json!({"containers": [{"name": "a"}], "serviceAccountName": "silent"}));
        let got = ask(&plugin(), &create(), &silent).await.unwrap();
        assert!(got.at(&["spec", "volumes"]).is_null());
        let mut loud = silent.clone();
        loud.set(&["spec", "automountServiceAccountToken"], true);
        let got = ask(&plugin(), &create(), &loud).await.unwrap();
        assert_eq!(got.at(&["spec", "volumes"]).items().len(), 1);
    }

    #[tokio::test]
    async fn existing_mounts_and_volumes_are_kept() {
        let own = json!([{"name": "own", "mountPath": (MOUNT_PATH)}]);
        let given = pod(json!({
            "containers": [{"name": "a", "volumeMounts": (own.clone())}, {"name": "b"}],
            "volumes": [{"name": "kube-api-access-mine"}],
        }));
        let got = ask(&plugin(), &create(), &given).await.unwrap();
        let containers = got.at(&["spec", "containers"]).items();
        assert_eq!(*containers[0].get("volumeMounts"), own);
        assert_eq!(
            containers[1].get("volumeMounts").items()[0].str_at(&["name"]),
            "kube-api-access-mine"
        );
        assert_eq!(got.at(&["spec", "volumes"]).items().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_account_is_rejected_and_the_default_one_awaited() {
        let bare = ServiceAccount::new(cluster(&[("", "serviceaccounts", vec![])]));
        let started = tokio::time::Instant::now();
        let other = pod(json!({"serviceAccountName": "x"}));
        assert_eq!(
            ask(&bare, &create(), &other).await.unwrap_err(),
            "pods \"p\" is forbidden: error looking up service account ns/x: serviceaccount \"x\" not found"
        );
        assert!(started.elapsed().is_zero());
        assert!(ask(&bare, &create(), &pod(json!({}))).await.is_err());
        assert_eq!(started.elapsed(), PAUSE * (ATTEMPTS as u32 - 1));
    }

    #[tokio::test]
    async fn mirror_pods_may_not_reference_api_objects() {
        let mut mirror = pod(json!({"containers": [{"name": "a"}]}));
        mirror.set(&["metadata", "annotations", "kubernetes.io/config.mirror"], "h");
        assert_eq!(ask(&plugin(), &create(), &mirror).await.unwrap(), mirror);
        mirror.set(&["spec", "serviceAccountName"], "default");
        let refused = ask(&plugin(), &create(), &mirror).await.unwrap_err();
        assert!(refused.ends_with("a mirror pod may not reference service accounts"));
    }

    #[tokio::test]
    async fn an_account_can_restrict_pods_to_its_secrets() {
        let with = |secret: &str| {
            pod(
                json!({"serviceAccountName": "strict", "containers": [{"name": "a", "env": [
                {"name": "E", "valueFrom": {"secretKeyRef": {"name": (secret), "key": "k"}}}]}]}),
            )
        };
        assert!(ask(&plugin(), &create(), &with("known")).await.is_ok());
        assert_eq!(
            ask(&plugin(), &create(), &with("other")).await.unwrap_err(),
            "pods \"p\" is forbidden: container a with envVar E referencing secret.secretName=\"other\" is not allowed \
             because service account strict does not reference that secret"
        );
        let all =
            json!([{"name": "a", "envFrom": [{"configMapRef": {"name": "other"}}, {"secretRef": {"name": "other"}}]}]);
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            let mut spec = json!({"serviceAccountName": "strict"});
            spec.set(&[list], all.clone());
            assert_eq!(
                ask(&plugin(), &create(), &pod(spec)).await.unwrap_err(),
                format!(
                    "pods \"p\" is forbidden: {what} a with envFrom referencing secret.secretName=\"other\" is not allowed \
                     because service account strict does not reference that secret"
                )
            );
        }
    }
}
