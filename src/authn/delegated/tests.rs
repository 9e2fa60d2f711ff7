use super::super::x509::tests::{ask, ca};
use super::*;
use crate::authn::{PresentedToken, TokenAuthenticator};
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
        token_file: None,
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

#[test]
fn failed_reads_and_watches_both_count_towards_the_backoff() {
    assert_eq!(failures_after(3, None, None), 0);
    assert_eq!(failures_after(3, Some("403"), None), 4);
    assert_eq!(failures_after(3, None, Some("gone")), 4);
    assert_eq!(failures_after(16, Some("403"), Some("gone")), 16);
}

#[tokio::test]
async fn a_review_is_repeated_if_the_connection_is_lost() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = ClientConfig {
        server: format!("https://{}", listener.local_addr().unwrap()),
        ca_pem: None,
        tls_server_name: None,
        client_identity: None,
        token: None,
        token_file: None,
    };
    let reviews = TokenReviews::try_new(Arc::new(Client::try_new(&config).unwrap())).unwrap();
    let (count, mut attempts) = tokio::sync::watch::channel(0);
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            drop(connection);
            count.send_modify(|n| *n += 1);
        }
    });
    let presented = PresentedToken {
        token: "t",
        audiences: &[],
    };
    // The second attempt shows it; the others would take seconds more.
    tokio::select! {
        repeated = attempts.wait_for(|n| *n > 1) => assert!(repeated.is_ok()),
        answer = reviews.authenticate_token(presented) => panic!("only one attempt: {:?}", answer.map(|_| ())),
    }
}
