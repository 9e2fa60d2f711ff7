//! WebSocket: watches, logs, and the streams of pods, to kubelets that speak WebSocket and to those that
//! speak SPDY only.

mod support;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::net::TcpStream;
use std::sync::Arc;
use support::Gateway;
use support::kubelet::{self, Kubelet};
use tokio_tungstenite::tungstenite;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::http::Response;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;
type Connected = (WebSocket<Tls>, Response<Option<Vec<u8>>>);

/// A connection of the administrator.
fn tls(g: &Gateway) -> Tls {
    let pki = g.dir.join("data/pki");
    let mut roots = rustls::RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(pki.join("ca.crt")).expect("a CA");
    roots.add(ca).expect("a CA");
    let chain = CertificateDer::pem_file_iter(pki.join("admin.crt")).expect("a chain");
    let key = PrivateKeyDer::from_pem_file(pki.join("admin.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the defaults are safe")
        .with_root_certificates(roots)
        .with_client_auth_cert(chain.map(|c| c.expect("a certificate")).collect(), key)
        .expect("the key fits");
    let url = g.url();
    let authority = url.strip_prefix("https://").expect("https");
    let tcp = TcpStream::connect(authority).expect("the gateway listens");
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    rustls::StreamOwned::new(
        rustls::ClientConnection::new(Arc::new(config), name).expect("a client"),
        tcp,
    )
}

/// Opens a WebSocket; a refusal is its status.
fn open(g: &Gateway, path: &str, headers: &[(&'static str, &str)]) -> Result<Connected, u16> {
    let url = format!("wss{}{path}", g.url().strip_prefix("https").expect("https"));
    let mut request = url.into_client_request().expect("a request");
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().expect("a header"));
    }
    match tungstenite::client(request, tls(g)) {
        Ok(connected) => Ok(connected),
        Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response))) => {
            Err(response.status().as_u16())
        }
        Err(other) => panic!("{path}: {other}"),
    }
}

/// The status of a refusal.
fn refused(g: &Gateway, path: &str, headers: &[(&'static str, &str)]) -> u16 {
    match open(g, path, headers) {
        Ok(_) => panic!("{path} is upgraded"),
        Err(code) => code,
    }
}

/// The messages up to the close frame, whose code must be 1000.
fn messages(socket: &mut WebSocket<Tls>) -> Vec<Message> {
    let mut all = Vec::new();
    loop {
        match socket.read().expect("a message") {
            Message::Close(frame) => {
                assert_eq!(frame.expect("a code").code, CloseCode::Normal);
                return all;
            }
            message => all.push(message),
        }
    }
}

fn binary(channel: u8, text: &str) -> Message {
    Message::Binary([&[channel], text.as_bytes()].concat().into())
}

const PROTOCOL: &str = "sec-websocket-protocol";

#[test]
fn a_watch_sends_one_message_per_event() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let g = Gateway::start(dir.path());
    let path = "/api/v1/namespaces?watch=true&timeoutSeconds=3&fieldSelector=metadata.name%3Ddefault";
    let origin = ("origin", "https://example.com");
    let (mut socket, response) = open(&g, path, &[origin, (PROTOCOL, "any.example.com")]).expect("an upgrade");
    assert_eq!(response.headers()[PROTOCOL], "any.example.com");
    let events = messages(&mut socket);
    assert_eq!(events.len(), 1, "{events:?}");
    let Message::Text(event) = &events[0] else {
        panic!("{events:?} is text");
    };
    assert!(
        event.starts_with(r#"{"type":"ADDED","object":{"kind":"Namespace","#),
        "{event}"
    );
    assert!(event.ends_with("}}\n"), "{event}");

    let protobuf = ("accept", "application/vnd.kubernetes.protobuf");
    let (mut socket, _) = open(&g, path, &[origin, protobuf]).expect("an upgrade");
    let events = messages(&mut socket);
    // Field 1 of the event is its type, without the length that separates events in a stream.
    assert!(
        matches!(&events[..], [Message::Binary(event)] if event.starts_with(b"\x0a\x05ADDED")),
        "{events:?}"
    );

    let future = "/api/v1/namespaces?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
                   &resourceVersionMatch=NotOlderThan&resourceVersion=99999999";
    let (mut socket, _) = open(&g, future, &[origin]).expect("an upgrade");
    let events = messages(&mut socket);
    assert!(
        matches!(&events[..], [Message::Text(event)] if event.contains(r#""type":"ERROR""#)),
        "{events:?}"
    );

    assert_eq!(refused(&g, path, &[]), 403);
    assert_eq!(refused(&g, path, &[("origin", "null")]), 403);
    let two = (PROTOCOL, "a.example.com, b.example.com");
    assert_eq!(refused(&g, path, &[origin, two]), 400);
    // Errors of the request itself are reported by a Status, as without an upgrade.
    let upgrade = ["--http1.1", "-H", "Connection: Upgrade", "-H", "Upgrade: websocket"];
    let answer = g.curl(&[&upgrade[..], &["/api/v1/namespaces?watch=true&fieldSelector=x"]].concat());
    let answer = answer.expect_err("a selector without a value");
    assert!(answer.contains("\"kind\": \"Status\""), "{answer}");
}

/// A gateway with a kubelet, its node and a pod on it.
fn with_kubelet(dir: &std::path::Path) -> (Gateway, Kubelet) {
    let kubelet = Kubelet::start(dir);
    let flags = kubelet::flags(dir);
    let g = Gateway::start_with(dir, &flags.each_ref().map(String::as_str));
    kubelet::make_node(&g, kubelet.port);
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  nodeName: worker\n  \
               automountServiceAccountToken: false\n  containers: [{name: main, image: a}]\n";
    g.kubectl_in(&["create", "-f", "-"], Some(pod));
    (g, kubelet)
}

const POD: &str = "/api/v1/namespaces/default/pods/p";

#[test]
fn logs_are_messages_of_the_negotiated_subprotocol() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (g, _kubelet) = with_kubelet(dir.path());
    let path = format!("{POD}/log");
    let text = "asked /containerLogs/default/p/main\n";
    let (mut socket, response) = open(&g, &path, &[(PROTOCOL, "unknown, binary.k8s.io")]).expect("an upgrade");
    assert_eq!(response.headers()[PROTOCOL], "binary.k8s.io");
    let wanted = ["", text].map(|text| Message::Binary(text.as_bytes().to_vec().into()));
    assert_eq!(messages(&mut socket), wanted);

    let (mut socket, response) = open(&g, &path, &[]).expect("an upgrade");
    assert!(!response.headers().contains_key(PROTOCOL));
    assert_eq!(messages(&mut socket), wanted);

    let (mut socket, _) = open(&g, &path, &[(PROTOCOL, "base64.binary.k8s.io")]).expect("an upgrade");
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    assert_eq!(messages(&mut socket), [Message::text(""), Message::text(encoded)]);

    assert_eq!(refused(&g, &path, &[(PROTOCOL, "unknown")]), 403);
}

#[test]
fn exec_is_translated_for_kubelets_that_speak_spdy_only() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (g, _kubelet) = with_kubelet(dir.path());
    let both = (PROTOCOL, "v4.channel.k8s.io, v5.channel.k8s.io");
    let path = format!("{POD}/exec?command=cat&stdin=true&stdout=true&stderr=true");
    let (mut socket, response) = open(&g, &path, &[both]).expect("an upgrade");
    assert_eq!(response.headers()[PROTOCOL], "v5.channel.k8s.io");
    let large = "x".repeat(100_000);
    for text in ["a\n", &large] {
        socket.send(binary(0, text)).expect("the gateway reads");
    }
    // Half-close: the command sees the end of its input, and its output still arrives.
    socket
        .send(Message::Binary(vec![255, 0].into()))
        .expect("the gateway reads");
    let mut said: [Vec<u8>; 4] = Default::default();
    for message in messages(&mut socket) {
        let bytes = message.into_data();
        said[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
    }
    let target = "/exec/default/p/main?command=cat&error=1&input=1&output=1";
    assert_eq!(String::from_utf8_lossy(&said[1]), format!("spdy {target}\na\n{large}"));
    assert_eq!(
        String::from_utf8_lossy(&said[3]),
        r#"{"metadata":{},"status":"Success"}"#
    );

    let path = format!("{POD}/exec?command=fail&stdout=true");
    let (mut socket, _) = open(&g, &path, &[both]).expect("an upgrade");
    let all = messages(&mut socket);
    assert_eq!(
        all.first(),
        Some(&binary(1, "")),
        "the first message tells that the connection is established"
    );
    let status = r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
    assert_eq!(all.last(), Some(&binary(3, status)));
}

#[test]
fn other_protocols_and_declaring_nodes_get_the_kubelets_own_websocket() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (g, _kubelet) = with_kubelet(dir.path());
    let path = format!("{POD}/exec?command=true&stdout=true");
    let said = |protocol: &str| {
        let (mut socket, response) = open(&g, &path, &[(PROTOCOL, protocol)]).expect("an upgrade");
        assert_eq!(response.headers()[PROTOCOL], protocol);
        messages(&mut socket)
    };
    let asked = binary(1, "asked /exec/default/p/main?command=true&output=1\n");
    assert!(said("v4.channel.k8s.io").contains(&asked));
    assert!(!said("v5.channel.k8s.io").contains(&asked));
    let declared = r#"{"status":{"declaredFeatures":["ExtendWebSocketsToKubelet"]}}"#;
    kubelet::patch_status(&g, declared);
    assert!(said("v5.channel.k8s.io").contains(&asked));
}

const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// Creates a running pod whose name tells the kubelet how to answer, and returns the path of its port
/// forwarding.
fn forwarded(g: &Gateway, name: &str) -> String {
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  nodeName: worker\n  \
         automountServiceAccountToken: false\n  containers: [{{name: main, image: a}}]\n"
    );
    g.kubectl_in(&["create", "-f", "-"], Some(&pod));
    let running = r#"{"status":{"phase":"Running"}}"#;
    g.kubectl(&[
        "patch",
        "pod",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        running,
    ]);
    format!("/api/v1/namespaces/default/pods/{name}/portforward")
}

#[test]
fn port_forwarding_is_tunnelled() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (g, _kubelet) = with_kubelet(dir.path());
    let path = format!("{POD}/portforward");
    let (mut socket, response) = open(&g, &path, &[(PROTOCOL, TUNNEL)]).expect("an upgrade");
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()[PROTOCOL], TUNNEL);
    let bytes = vec![7u8; 200_000];
    socket
        .send(Message::Binary(bytes.clone().into()))
        .expect("the gateway reads");
    let mut echoed = Vec::new();
    while echoed.len() < bytes.len() {
        echoed.extend_from_slice(&socket.read().expect("a message").into_data());
    }
    assert_eq!(echoed, bytes);
    // Text is a violation of the protocol, which ends the tunnel.
    socket.send(Message::text("no")).expect("the gateway reads");
    assert_eq!(messages(&mut socket), []);

    // A client that closes gets its close frame back.
    let (mut socket, _) = open(&g, &path, &[(PROTOCOL, TUNNEL)]).expect("an upgrade");
    socket.close(None).expect("the gateway reads");
    assert!(matches!(socket.read(), Ok(Message::Close(_))));
    assert!(socket.read().is_err());

    // A message is limited, whether it comes in one frame or in many.
    let (mut socket, _) = open(&g, &path, &[(PROTOCOL, TUNNEL)]).expect("an upgrade");
    let huge = tungstenite::protocol::frame::FrameHeader {
        is_final: true,
        opcode: tungstenite::protocol::frame::coding::OpCode::Data(tungstenite::protocol::frame::coding::Data::Binary),
        mask: Some([0; 4]),
        ..Default::default()
    };
    let mut head = Vec::new();
    huge.format(1 << 40, &mut head).expect("a header");
    let io = socket.get_mut();
    std::io::Write::write_all(io, &head).expect("the gateway reads");
    std::io::Write::flush(io).expect("the gateway reads");
    assert_eq!(messages(&mut socket), []);
}

#[test]
fn port_forwarding_ends_as_the_kubelet_does() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (g, _kubelet) = with_kubelet(dir.path());
    let tunnel = [(PROTOCOL, TUNNEL)];
    // The kubelet's refusal is passed on, and an answer that does not switch to SPDY is an error.
    assert_eq!(refused(&g, &forwarded(&g, "refusing"), &tunnel), 403);
    assert_eq!(refused(&g, &forwarded(&g, "plain"), &tunnel), 500);
    // Its last bytes arrive before the close frame.
    let (mut socket, _) = open(&g, &forwarded(&g, "leaving"), &tunnel).expect("an upgrade");
    socket.send(binary(1, "last")).expect("the gateway reads");
    assert_eq!(messages(&mut socket), [binary(1, "last")]);

    let path = format!("{POD}/portforward");
    // Without a tunnel among the subprotocols the request goes to the kubelet, which answers 200 here instead
    // of switching.
    for other in ["v4.channel.k8s.io", "SPDY/3.1+other", "SPDY/3.1+"] {
        assert_eq!(refused(&g, &path, &[(PROTOCOL, other)]), 500, "{other}");
    }
    let nobody = r#"{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":1}}}}"#;
    kubelet::patch_status(&g, nobody);
    assert_eq!(refused(&g, &path, &tunnel), 500);
}

/// kubectl speaks WebSocket since v1.31, and SPDY before.
#[test]
fn kubectl_forwards_ports() {
    use std::io::{BufRead as _, Read as _, Write as _};
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (g, _kubelet) = with_kubelet(dir.path());
    forwarded(&g, "streams");
    let mut kubectl = std::process::Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(g.kubeconfig())
        .args(["port-forward", "pod/streams", ":80"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("kubectl");
    // Kept open: kubectl tells of each connection.
    let mut stdout = std::io::BufReader::new(kubectl.stdout.take().expect("piped"));
    let port = stdout.by_ref().lines().map_while(Result::ok).find_map(|line| {
        let address = line.strip_prefix("Forwarding from 127.0.0.1:")?;
        address.split(' ').next()?.parse::<u16>().ok()
    });
    let port = port.expect("kubectl listens");
    let text = "x".repeat(300_000);
    // One after the other: the fake kubelet tells streams apart by the order in which kubectl opens them.
    for _ in 0..3 {
        let mut connection = TcpStream::connect(("127.0.0.1", port)).expect("kubectl listens");
        let mut writer = connection.try_clone().expect("a descriptor");
        let sent = text.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(sent.as_bytes()).expect("kubectl reads");
            writer.shutdown(std::net::Shutdown::Write).expect("a connection");
        });
        let mut echoed = String::new();
        connection.read_to_string(&mut echoed).expect("an echo");
        writing.join().expect("it is written");
        assert!(echoed == text, "{} bytes came back", echoed.len());
    }
    kubectl.kill().expect("it runs");
    kubectl.wait().expect("it ends");
}
