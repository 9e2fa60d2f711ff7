//! The identity of the gateway towards webhooks: the users of a kubeconfig, and the loopback user for a
//! webhook that is an aggregated API behind the gateway's own Service.

use crate::world::{CONFIGMAPS, ConfigurationKind, World, configmap, with};
use std::time::{Duration, Instant};
use torana::apimachinery::value::Value;
use torana::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_authenticates_with_the_kubeconfig_of_the_configuration_file() {
    let w = World::start_with(|dir| {
        let (kubeconfig, file) = (dir.join("webhooks.kubeconfig"), dir.join("admission.yaml"));
        let users =
            "users:\n- {name: elsewhere.svc, user: {token: wrong}}\n- {name: '*', user: {token: webhook-token}}\n";
        std::fs::write(&kubeconfig, format!("apiVersion: v1\nkind: Config\n{users}")).unwrap();
        let configuration = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
             - name: ValidatingAdmissionWebhook\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    \
             kind: WebhookAdmissionConfiguration\n    kubeConfigFile: {}\n",
            kubeconfig.display()
        );
        std::fs::write(&file, configuration).unwrap();
        vec![format!("--admission-control-config-file={}", file.display())]
    })
    .await;
    // Each plugin has an identity of its own.
    for (kind, authorization) in [
        (ConfigurationKind::Validating, "Bearer webhook-token"),
        (ConfigurationKind::Mutating, ""),
    ] {
        w.configure(kind, "any", vec![w.hook("any.example.com", "allow")]).await;
        let made = w
            .create(CONFIGMAPS, &configmap(&format!("{kind:?}").to_lowercase()))
            .await;
        assert_eq!(made.code, 201, "{made:?}");
        w.remove(kind, "any").await;
        assert_eq!(w.server.seen().pop().unwrap().authorization, authorization, "{kind:?}");
    }
    assert!(w.gateway.shut_down().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_behind_the_gateways_own_service_is_called_as_the_loopback_user() {
    let w = World::start().await;
    let service =
        json!({"metadata": {"name": "reviewer"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    let made = w.create("/api/v1/namespaces/default/services", &service).await;
    assert_eq!(made.code, 201, "{made:?}");
    let registration = json!({"metadata": {"name": "v1.admission.example.com"}, "spec": {
        "group": "admission.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "insecureSkipTLSVerify": true,
        "service": {"namespace": "default", "name": "reviewer", "port": (i64::from(w.server.port))}}});
    let api_services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let made = w.create(api_services, &registration).await;
    assert_eq!(made.code, 201, "{made:?}");
    let limit = Instant::now() + Duration::from_secs(60);
    let available = async || {
        let found = w.get(&format!("{api_services}/v1.admission.example.com")).await;
        let conditions = found.body.at(&["status", "conditions"]).items().to_vec();
        conditions
            .iter()
            .any(|c| c.str_at(&["type"]) == "Available" && c.str_at(&["status"]) == "True")
    };
    while !available().await {
        assert!(
            Instant::now() < limit,
            "the aggregated API is not available after a minute"
        );
        tokio::task::yield_now().await;
    }
    let own = json!({"service": {"namespace": "default", "name": "kubernetes", "path": "/apis/admission.example.com/v1/reviews"}});
    let hook = with(w.hook("own.example.com", ""), "clientConfig", own);
    w.configure(ConfigurationKind::Validating, "own", vec![hook]).await;
    let refused = w.create(CONFIGMAPS, &configmap("refused")).await;
    assert_eq!(refused.code, 418, "{refused:?}");
    assert_eq!(
        refused.body.str_at(&["message"]),
        "admission webhook \"own.example.com\" denied the request: no coffee here"
    );
    let seen = w.server.seen().pop().unwrap();
    assert_eq!(seen.path, "apis/admission.example.com/v1/reviews");
    assert_eq!(seen.review.str_at(&["request", "name"]), "refused");
    assert_eq!(seen.review.str_at(&["request", "userInfo", "username"]), "admin");
    // The aggregator passes it on.
    assert_eq!(seen.user_agent, "kube-apiserver-admission");
    let user = ["x-remote-user: system:apiserver", "x-remote-group: system:masters"];
    assert!(
        user.iter().all(|line| seen.remote.iter().any(|r| r == line)),
        "{:?}",
        seen.remote
    );
    assert_eq!(
        w.get(&format!("{CONFIGMAPS}/refused")).await.body.get("data"),
        &Value::Null
    );
    assert!(w.gateway.shut_down().await);
}
