//! The server that the gateway calls: admission and conversion webhooks, and a stand-in for an extension API
//! server. Its certificate is made for this run.

use crate::http::{Headers, header, read_body, read_head};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The group of a case's extension server is its run name and this.
const GROUP: &str = ".ext.example.com";
/// Headers that an extension server's echo leaves out.
const UNECHOED: &[&str] = &[
    "user-agent",
    "host",
    "x-forwarded-for",
    "content-length",
    "audit-id",
    "traceparent",
];

pub(crate) struct Callbacks {
    pub port: u16,
    /// The certificate in the form of a `caBundle`.
    pub bundle: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The scripts of each run, by name.
    scripts: HashMap<String, BTreeMap<String, Value>>,
    /// The requests received, by run and script.
    calls: HashMap<(String, String), Vec<Value>>,
}

/// A request of the gateway.
struct Call {
    method: String,
    target: String,
    headers: Headers,
    body: Value,
}

struct CallbackResponse {
    status: u16,
    of_type: String,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

fn answer(body: &Value) -> CallbackResponse {
    CallbackResponse {
        status: 200,
        of_type: "application/json".to_owned(),
        headers: Vec::new(),
        body: body.to_string(),
    }
}

fn plain(status: u16, body: &str) -> CallbackResponse {
    CallbackResponse {
        status,
        of_type: "text/plain".to_owned(),
        headers: Vec::new(),
        body: body.to_owned(),
    }
}

impl Callbacks {
    /// Starts listening. The threads live as long as the process.
    pub(crate) fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        let tls = Arc::new(tls);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let callbacks = Self {
            port: listener.local_addr().unwrap().port(),
            bundle: BASE64_STANDARD.encode(certificate.pem()),
            state: Arc::default(),
        };
        let state = callbacks.state.clone();
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (tls, state) = (tls.clone(), state.clone());
                // A connection that fails is the gateway's to report.
                std::thread::spawn(move || serve(tcp, tls, &state));
            }
        });
        callbacks
    }

    pub(crate) fn register(&self, run: &str, scripts: BTreeMap<String, Value>) {
        let mut state = self.state.lock().unwrap();
        state.scripts.insert(run.to_owned(), scripts);
    }

    /// The requests that a script has received so far.
    pub(crate) fn calls(&self, run: &str, script: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let calls = state.calls.get(&(run.to_owned(), script.to_owned()));
        calls.cloned().unwrap_or_default()
    }
}

fn serve(tcp: TcpStream, tls: Arc<ServerConfig>, state: &Mutex<State>) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let tls = ServerConnection::new(tls).map_err(io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(tls, tcp));
    loop {
        let (first, headers) = read_head(&mut stream)?;
        let body = read_body(&mut stream, &headers)?.unwrap_or_default();
        let mut words = first.split(' ').map(str::to_owned);
        let call = Call {
            method: words.next().unwrap_or_default(),
            target: words.next().unwrap_or_default(),
            body: match body.is_empty() {
                true => Value::Null,
                false => serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))),
            },
            headers,
        };
        let answer = respond(&call, state);
        let mut out = format!("HTTP/1.1 {} X\r\nContent-Type: {}\r\n", answer.status, answer.of_type);
        for (name, value) in answer.headers {
            out += &format!("{name}: {value}\r\n");
        }
        out += &format!("Content-Length: {}\r\n\r\n{}", answer.body.len(), answer.body);
        stream.get_mut().write_all(out.as_bytes())?;
        stream.get_mut().flush()?;
    }
}

fn respond(call: &Call, state: &Mutex<State>) -> CallbackResponse {
    let path = call.target.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_extension = matches!(parts[0], "apis" | "openapi");
    let (run, name) = match is_extension {
        true => (
            parts.iter().find_map(|p| p.strip_suffix(GROUP)).unwrap_or_default(),
            "ext",
        ),
        false => (parts[0], parts.get(1).copied().unwrap_or_default()),
    };
    let script = {
        let mut state = state.lock().unwrap();
        let Some(script) = state.scripts.get(run).and_then(|s| s.get(name)).cloned() else {
            return CallbackResponse {
                status: 404,
                ..answer(&json!({}))
            };
        };
        // Discovery is polled, so its calls are not counted.
        if !is_extension || (parts.len() > 3 && parts[0] == "apis") {
            let calls = state.calls.entry((run.to_owned(), name.to_owned()));
            calls.or_default().push(record(call));
        }
        script
    };
    match script["kind"].as_str().unwrap_or_default() {
        "raw" => CallbackResponse {
            status: script["status"].as_u64().map_or(200, |s| s as u16),
            of_type: script["type"].as_str().unwrap_or("application/json").to_owned(),
            ..plain(200, script["body"].as_str().unwrap_or_default())
        },
        "admission" => review(&script, &call.body),
        "conversion" => convert(&script, &call.body),
        "ext" => extend(run, &parts, call),
        other => panic!("unknown script {other}"),
    }
}

/// The part of a call that cases compare.
fn record(call: &Call) -> Value {
    let is_remote = |name: &str| name.to_ascii_lowercase().starts_with("x-remote-");
    let remote = call.headers.iter().filter(|(n, _)| is_remote(n));
    let remote: Map<String, Value> = remote.map(|(n, v)| (n.clone(), json!(v))).collect();
    json!({
        "method": call.method,
        "path": call.target,
        "body": call.body,
        "contentType": header(&call.headers, "content-type"),
        "accept": header(&call.headers, "accept"),
        "remote": remote,
    })
}

/// An admission webhook: the scripted response, with the request's uid and the patch encoded.
fn review(script: &Value, body: &Value) -> CallbackResponse {
    let mut response = script["response"].clone();
    if response.get("uid").is_none() && body.get("request").is_some() {
        response["uid"] = body["request"]["uid"].clone();
    }
    if response["patch"].is_array() {
        response["patch"] = json!(BASE64_STANDARD.encode(response["patch"].to_string()));
        response["patchType"] = json!("JSONPatch");
    }
    let version = script["apiVersion"].as_str().unwrap_or("admission.k8s.io/v1");
    answer(&json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}))
}

/// A conversion webhook that moves members of the spec, as scripted for the version wanted.
fn convert(script: &Value, body: &Value) -> CallbackResponse {
    let request = &body["request"];
    let to = &request["desiredAPIVersion"];
    let version = to.as_str().and_then(|t| t.split_once('/')).map_or("", |(_, v)| v);
    let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
    for object in objects.iter_mut().filter(|o| o["apiVersion"] != *to) {
        object["apiVersion"] = to.clone();
        for (from, into) in script["moves"][version].as_object().into_iter().flatten() {
            let spec = object.get_mut("spec").and_then(Value::as_object_mut);
            if let (Some(spec), Some(into)) = (spec, into.as_str())
                && let Some(moved) = spec.remove(from)
            {
                spec.insert(into.to_owned(), moved);
            }
        }
    }
    let uid = &request["uid"];
    let response = match script.get("fail") {
        Some(why) => json!({"uid": uid, "result": {"status": "Failure", "message": why}}),
        None => json!({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}}),
    };
    answer(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}))
}

/// An extension API server: discovery of one resource, and an echo of every other request.
fn extend(run: &str, parts: &[&str], call: &Call) -> CallbackResponse {
    let group_version = format!("{run}{GROUP}/v1");
    let marked = |answer| CallbackResponse {
        headers: vec![("X-Parity", "yes")],
        ..answer
    };
    if parts.len() == 3 && parts[0] == "apis" && parts[2] == "v1" {
        return marked(answer(&json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": [{"name": "echoes", "singularName": "echo", "namespaced": true, "kind": "Echo",
                           "verbs": ["get", "list", "create"]}],
        })));
    }
    if parts[0] == "openapi" || parts.len() <= 2 {
        return CallbackResponse {
            status: 404,
            ..answer(&json!({}))
        };
    }
    match parts[parts.len() - 1] {
        "teapot" => marked(plain(418, "short and stout")),
        "redirect" => CallbackResponse {
            headers: vec![("Location", "https://example.invalid/elsewhere")],
            ..plain(302, "")
        },
        _ => {
            let has = |name: &str| header(&call.headers, name).is_some();
            let lower = call.headers.iter().map(|(n, v)| (n.to_ascii_lowercase(), json!(v)));
            let echoed: Map<String, Value> = lower.filter(|(n, _)| !UNECHOED.contains(&n.as_str())).collect();
            marked(answer(&json!({
                "kind": "Echo", "apiVersion": group_version, "method": call.method, "path": call.target,
                "body": call.body, "headers": echoed,
                "has": {
                    "x-forwarded-for": has("x-forwarded-for"), "audit-id": has("audit-id"),
                    "user-agent": has("user-agent"), "authorization": has("authorization"),
                },
            })))
        }
    }
}
