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
    let unnameable = pod(json!({"serviceAccountName": "a/b%"}));
    assert_eq!(
        ask(&bare, &create(), &unnameable).await.unwrap_err(),
        "pods \"p\" is forbidden: error looking up service account ns/a/b%: invalid resource name \"a/b%\": \
         [may not contain '/' may not contain '%']"
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
