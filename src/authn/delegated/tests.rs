use super::super::x509::tests::{ask, ca};
use super::*;
use crate::client::ClientConfig;
use crate::json;
use http::HeaderMap;

fn nowhere() -> Arc<Client> {
    let config = ClientConfig {
        server: "https://127.0.0.1:1".into(),
        ca_pem: None,
        tls_server_name: None,
        client_identity: None,
        token: None,
    };
    Arc::new(Client::try_new(&config).unwrap())
}

fn config_map(client_ca: &str, proxy_ca: &str) -> Value {
    json!({"data": {
        "client-ca-file": client_ca,
        "requestheader-client-ca-file": proxy_ca,
        "requestheader-allowed-names": "[\"aggregator\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]"}})
}

#[tokio::test]
async fn trust_follows_the_config_map() {
    let (users, proxies, others) = (ca("users"), ca("proxies"), ca("others"));
    let map = config_map(&users.pem(), &proxies.pem());
    let d = Delegated::with(
        &Configuration::parse(&map).unwrap(),
        TokenReviews::try_new(nowhere()).unwrap(),
    )
    .unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("x-remote-user", "jane".parse().unwrap());
    let proxy = proxies.client("aggregator", &[]);
    assert_eq!(ask(&d, &proxy, &headers).await.unwrap().unwrap().name, "jane");
    let direct = ask(&d, &users.client("joe", &["dev"]), &headers)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((direct.name.as_str(), direct.groups[0].as_str()), ("joe", "dev"));

    d.take(&config_map(&users.pem(), &others.pem()));
    assert!(ask(&d, &proxy, &headers).await.is_err(), "the old proxy CA is gone");
    let other = others.client("aggregator", &[]);
    assert_eq!(ask(&d, &other, &headers).await.unwrap().unwrap().name, "jane");

    d.take(&json!({"data": {"client-ca-file": "nonsense"}}));
    assert_eq!(
        ask(&d, &other, &headers).await.unwrap().unwrap().name,
        "jane",
        "a bad change changes nothing"
    );
}

#[test]
fn config_map_errors_name_the_key() {
    let mut map = config_map("a", "b");
    map.set(&["data", "requestheader-username-headers"], "[1]");
    assert_eq!(
        Configuration::parse(&map).unwrap_err().to_string(),
        "requestheader-username-headers: expected a JSON list of strings"
    );
    assert!(Configuration::parse(&json!({})).unwrap().client_ca.is_none());
}

#[tokio::test(start_paused = true)]
async fn start_fails_if_the_core_server_stays_unreachable() {
    let tasks = TaskGroup::new("test");
    let e = Delegated::start(nowhere(), &tasks, Duration::from_secs(3))
        .await
        .err()
        .unwrap();
    assert!(
        e.to_string()
            .starts_with("ConfigMap kube-system/extension-apiserver-authentication cannot be read: "),
        "{e}"
    );
    assert!(tasks.is_empty());
}
