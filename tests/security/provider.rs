//! An identity provider and a token webhook in the test process.

use crate::wire::{Ca, body, head};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, RsaKeyPair,
};
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use torana::apimachinery::Value;
use torana::apimachinery::codec::json;
use torana::json;
use torana::testing::authn::Signer;

pub(crate) fn rsa() -> Signer {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).expect("it can be written");
    Signer::from_der(der.as_ref()).expect("a key")
}

pub(crate) fn p256() -> Signer {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    Signer::from_der(pair.to_pkcs8v1().expect("it can be written").as_ref()).expect("a key")
}

pub(crate) fn p384() -> Signer {
    let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key");
    Signer::from_der(pair.to_pkcs8v1().expect("it can be written").as_ref()).expect("a key")
}

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    i64::try_from(since.as_secs()).expect("it is not that late")
}

/// An HTTPS server on 127.0.0.1 as `localhost` that answers each `(target, body)`. Its threads end with the
/// process.
pub(crate) struct Https {
    pub url: String,
    pub ca: String,
}

impl Https {
    pub(crate) fn start(answer: impl Fn(&str, &[u8]) -> String + Send + Sync + 'static) -> Self {
        let ca = Ca::new("a provider's CA");
        let identity = ca.server(&["localhost", "127.0.0.1"]);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the defaults are safe")
            .with_no_client_auth()
            .with_single_cert(identity.chain(), identity.private_key())
            .expect("the key fits");
        let (config, answer) = (Arc::new(config), Arc::new(answer));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (config, answer) = (config.clone(), answer.clone());
                std::thread::spawn(move || {
                    let Ok(connection) = rustls::ServerConnection::new(config) else {
                        return;
                    };
                    let mut io = rustls::StreamOwned::new(connection, tcp);
                    let Ok((first, headers)) = head(&mut io) else { return };
                    let Ok(body) = body(&mut io, &headers) else { return };
                    let text = answer(first.split(' ').nth(1).unwrap_or_default(), &body);
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                        text.len()
                    );
                    // A failed write means that the client disconnected.
                    let _ = io.write_all(format!("{head}{text}").as_bytes());
                    io.conn.send_close_notify();
                    let _ = io.flush();
                });
            }
        });
        Self {
            url: format!("https://localhost:{port}"),
            ca: ca.pem,
        }
    }
}

/// An OpenID Connect provider whose keys the test can change.
pub(crate) struct Provider {
    pub url: String,
    pub ca: String,
    keys: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    pub(crate) fn start(signers: &[&Signer]) -> Self {
        let (keys, url) = (
            Arc::<Mutex<Vec<String>>>::default(),
            Arc::new(Mutex::new(String::new())),
        );
        let https = Https::start({
            let (keys, url) = (keys.clone(), url.clone());
            move |target, _| match target {
                "/.well-known/openid-configuration" => {
                    let url = url.lock().expect("no code panics while holding this lock").clone();
                    format!(r#"{{"issuer":"{url}","jwks_uri":"{url}/keys"}}"#)
                }
                _ => {
                    let keys = keys.lock().expect("no code panics while holding this lock");
                    format!(r#"{{"keys":[{}]}}"#, keys.join(","))
                }
            }
        });
        url.lock()
            .expect("no code panics while holding this lock")
            .clone_from(&https.url);
        let provider = Self {
            url: https.url,
            ca: https.ca,
            keys,
        };
        provider.publish(signers);
        provider
    }

    /// Publishes these keys from now on.
    pub(crate) fn publish(&self, signers: &[&Signer]) {
        let keys = signers.iter().map(|s| s.public().to_jwk()).collect();
        *self.keys.lock().expect("no code panics while holding this lock") = keys;
    }

    /// Valid claims, unique per call.
    pub(crate) fn claims(&self) -> Value {
        json!({"iss": (self.url.as_str()), "sub": "jane", "aud": ["torana", "x"], "exp": (now() + 600),
            "iat": (now()), "groups": ["dev", "ops"], "jti": (uuid::Uuid::new_v4().to_string())})
    }

    /// A valid token.
    pub(crate) fn token(&self, signer: &Signer) -> String {
        signer.sign(&self.claims()).expect("it signs")
    }
}

/// A webhook that accepts one token and records the reviews it receives.
pub(crate) struct Webhook {
    https: Https,
    pub asked: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    pub(crate) fn start() -> Self {
        let asked = Arc::<Mutex<Vec<Value>>>::default();
        let https = Https::start({
            let asked = asked.clone();
            move |_, body| {
                let review = json::decode(body).expect("a review");
                let status = match review.str_at(&["spec", "token"]) {
                    "reviewed" => {
                        r#"{"authenticated":true,"user":{"username":"walter","uid":"w1","groups":["dev"],"extra":{"example.org/k":["v"]}}}"#
                    }
                    "elsewhere" => r#"{"authenticated":true,"user":{"username":"walter"},"audiences":["elsewhere"]}"#,
                    _ => r#"{"authenticated":false,"error":"never heard of it"}"#,
                };
                asked
                    .lock()
                    .expect("no code panics while holding this lock")
                    .push(review);
                format!(r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{status}}}"#)
            }
        });
        Self { https, asked }
    }

    /// How many reviews of a token were received.
    pub(crate) fn asked_about(&self, token: &str) -> usize {
        let asked = self.asked.lock().expect("no code panics while holding this lock");
        asked.iter().filter(|r| r.str_at(&["spec", "token"]) == token).count()
    }

    pub(crate) fn kubeconfig(&self) -> String {
        use base64::Engine;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.https.ca);
        let url = &self.https.url;
        format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: w, cluster: {{server: '{url}/review', \
             certificate-authority-data: {ca}}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
             contexts: [{{name: c, context: {{cluster: w, user: u}}}}]\ncurrent-context: c\n"
        )
    }
}
