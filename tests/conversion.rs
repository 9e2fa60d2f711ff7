//! Custom resources in several versions, as an unmodified kubectl uses them: rules, a webhook, and migration.

mod support;

use base64::Engine as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::Gateway;
use torana::apimachinery::codec::json;
use torana::apimachinery::value::Value;

/// A definition whose versions name a field differently. `stored` is the storage version.
fn definition(stored: &str, annotations: &str, conversion: &str) -> String {
    let version = |name: &str, field: &str| {
        format!(
            "{{name: {name}, served: true, storage: {}, schema: {{openAPIV3Schema: {{type: object, properties: {{spec: \
             {{type: object, properties: {{{field}: {{type: string}}, size: {{type: integer, default: 1}}}}}}}}}}}}}}",
            name == stored
        )
    };
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: engines.example.com, annotations: {annotations}}}\n\
         spec: {{group: example.com, scope: Namespaced, names: {{plural: engines, kind: Engine}}, conversion: {conversion},\n\
         versions: [{}, {}]}}\n",
        version("v1beta1", "colour"),
        version("v1", "color"),
    )
}

const NONE: &str = "{strategy: None}";
const RULES: &str =
    r#"{torana.dev/conversion: "[{from: v1beta1, to: v1, rules: [{move: {from: .spec.colour, to: .spec.color}}]}]"}"#;

fn engine(version: &str, name: &str, field: &str) -> String {
    format!("apiVersion: example.com/{version}\nkind: Engine\nmetadata: {{name: {name}}}\nspec: {{{field}: red}}\n")
}

fn defined(definition: &str) -> (tempfile::TempDir, Gateway) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    define(&g, definition);
    (dir, g)
}

fn define(g: &Gateway, definition: &str) {
    g.kubectl_in(&["apply", "-f", "-"], Some(definition));
    g.until_established("engines.example.com");
    support::wait_for("both versions are discovered", || {
        let known = g.kubectl(&["api-versions"]);
        known.contains("example.com/v1\n") && known.contains("example.com/v1beta1")
    });
}

fn read(g: &Gateway, version: &str, name: &str, path: &str) -> String {
    let resource = format!("engines.{version}.example.com");
    g.kubectl(&["get", &resource, name, "-o", &format!("jsonpath={path}")])
}

#[test]
fn rules_convert_objects_that_kubectl_reads_and_writes() {
    let (_dir, g) = defined(&definition("v1", RULES, NONE));
    g.kubectl_in(&["create", "-f", "-"], Some(&engine("v1beta1", "a", "colour")));
    g.kubectl_in(&["create", "-f", "-"], Some(&engine("v1", "b", "color")));
    for name in ["a", "b"] {
        assert_eq!(read(&g, "v1", name, "{.spec.color} {.spec.size}"), "red 1");
        assert_eq!(read(&g, "v1beta1", name, "{.spec.colour} {.spec.size}"), "red 1");
    }
    let listed = g.kubectl(&[
        "get",
        "engines.v1beta1.example.com",
        "-o",
        "jsonpath={.items[*].spec.colour}",
    ]);
    assert_eq!(listed, "red red");
    g.kubectl(&[
        "patch",
        "engines.v1beta1.example.com",
        "b",
        "--type=merge",
        "-p",
        r#"{"spec":{"colour":"blue"}}"#,
    ]);
    assert_eq!(read(&g, "v1", "b", "{.spec.color}"), "blue");
    // Without the rules, a field that the other version does not know is pruned.
    g.kubectl(&["annotate", "crd", "engines.example.com", "torana.dev/conversion-"]);
    support::wait_for("the rules are gone", || {
        read(&g, "v1beta1", "b", "{.spec.colour}").is_empty()
    });
    assert_eq!(read(&g, "v1", "b", "{.spec.color}"), "blue", "and is still stored");
}

#[test]
fn replacing_every_object_migrates_to_another_storage_version() {
    let (_dir, g) = defined(&definition("v1beta1", RULES, NONE));
    g.kubectl_in(&["create", "-f", "-"], Some(&engine("v1", "a", "color")));
    g.kubectl_in(&["apply", "-f", "-"], Some(&definition("v1", RULES, NONE)));
    let stored = || {
        g.kubectl(&[
            "get",
            "crd",
            "engines.example.com",
            "-o",
            "jsonpath={.status.storedVersions}",
        ])
    };
    assert_eq!(stored(), r#"["v1beta1","v1"]"#);
    let version = || read(&g, "v1", "a", "{.metadata.resourceVersion}");
    let before = version();
    let replace = || {
        let all = g.kubectl(&["get", "engines.v1.example.com", "-o", "json"]);
        g.kubectl_in(&["replace", "-f", "-"], Some(&all));
        version()
    };
    let migrated = replace();
    assert_ne!(
        migrated, before,
        "an unchanged object is written in the new storage version"
    );
    assert_eq!(replace(), migrated, "and then no more");
    assert_eq!(read(&g, "v1", "a", "{.spec.color}"), "red");
}

/// A conversion webhook on loopback, which renames the field.
struct Webhook {
    conversion: String,
    calls: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
}

fn convert(review: &Value) -> Value {
    let desired = review.str_at(&["request", "desiredAPIVersion"]);
    let [old, new] = match desired {
        "example.com/v1" => ["colour", "color"],
        _ => ["color", "colour"],
    };
    let objects = review.at(&["request", "objects"]).items().iter().map(|o| {
        let mut o = o.clone();
        if let Some(value) = o.unset(&["spec", old]) {
            o.set(&["spec", new], value);
        }
        o.set(&["apiVersion"], desired);
        o
    });
    let mut answer = torana::json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"result": {"status": "Success"}}});
    answer.set(&["response", "convertedObjects"], objects.collect::<Vec<_>>());
    answer.set(&["response", "uid"], review.at(&["request", "uid"]).clone());
    answer
}

fn webhook() -> Webhook {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the versions")
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(made.cert.der().to_vec())], key)
        .expect("certificate and key fit");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}/convert", listener.local_addr().expect("it is bound"));
    let bundle = base64::engine::general_purpose::STANDARD.encode(made.cert.pem());
    let (calls, broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, fails) = (calls.clone(), broken.clone());
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let (config, count, fails) = (config.clone(), count.clone(), fails.clone());
            std::thread::spawn(move || {
                let tls = rustls::ServerConnection::new(config).expect("the configuration is complete");
                let mut http = BufReader::new(rustls::StreamOwned::new(tls, tcp));
                while let Some(review) = request(&mut http) {
                    count.fetch_add(1, Ordering::Relaxed);
                    let body = match fails.load(Ordering::Relaxed) {
                        true => b"{}".to_vec(),
                        false => json::to_vec(&convert(&review)),
                    };
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    let out = http.get_mut();
                    if out
                        .write_all(head.as_bytes())
                        .and_then(|()| out.write_all(&body))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    Webhook {
        conversion: format!(
            "{{strategy: Webhook, webhook: {{conversionReviewVersions: [v1], clientConfig: {{url: \"{url}\", caBundle: \
             {bundle}}}}}}}"
        ),
        calls,
        broken,
    }
}

fn request(http: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if http.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", n)) => length = n.parse().ok()?,
            Some(_) => {}
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    http.read_exact(&mut body).ok()?;
    json::decode(&body).ok()
}

#[test]
fn a_webhook_is_called_once_per_object_and_its_failure_affects_only_its_version() {
    let hook = webhook();
    let (_dir, g) = defined(&definition("v1", "{}", &hook.conversion));
    for name in ["a", "b", "c"] {
        g.kubectl_in(&["create", "-f", "-"], Some(&engine("v1", name, "color")));
    }
    assert_eq!(
        hook.calls.load(Ordering::Relaxed),
        0,
        "the storage version needs no webhook"
    );
    let list = || {
        g.kubectl(&[
            "get",
            "engines.v1beta1.example.com",
            "-o",
            "jsonpath={.items[*].spec.colour}",
        ])
    };
    assert_eq!(list(), "red red red");
    assert_eq!(list(), "red red red");
    assert_eq!(
        hook.calls.load(Ordering::Relaxed),
        1,
        "one review for the list, then from the cache"
    );
    g.kubectl_in(&["create", "-f", "-"], Some(&engine("v1beta1", "d", "colour")));
    assert_eq!(read(&g, "v1", "d", "{.spec.color}"), "red");

    hook.broken.store(true, Ordering::Relaxed);
    g.kubectl(&[
        "patch",
        "engines.v1.example.com",
        "a",
        "--type=merge",
        "-p",
        r#"{"spec":{"size":2}}"#,
    ]);
    let why = g.kubectl_fails(&["get", "engines.v1beta1.example.com"], None);
    let expected = "conversion webhook for example.com/v1, Kind=Engine failed: expected webhook response of \
                    apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=";
    assert!(why.contains(expected), "{why}");
    assert_eq!(read(&g, "v1", "a", "{.spec.size}"), "2");
    assert_eq!(
        read(&g, "v1beta1", "b", "{.spec.colour}"),
        "red",
        "what was converted before is still there"
    );
    hook.broken.store(false, Ordering::Relaxed);
    assert_eq!(list(), "red red red red");
}
