//! A gateway behind a gateway: upgrades and unbounded bodies pass through both without being buffered.

mod support;
#[path = "security/wire.rs"]
#[allow(dead_code, reason = "only the certificates are used here")]
mod wire;

use base64::Engine;
use proxy_conformance::backend::{CASE_HEADER, Event, Framing, Part, Script};
use proxy_conformance::client::{Credentials, Http, Io, Request, RequestBody, Target};
use proxy_conformance::environment::{Environment, Options};
use std::path::Path;
use support::{Gateway, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const GROUP: &str = "h1.conformance.example.com";
/// Bytes streamed in each direction.
const STREAMED_BYTES: usize = 32 << 20;
/// How much a gateway's peak memory may grow, in bytes.
const MAX_GROWTH: usize = 12 << 20;

struct Two {
    front: Gateway,
    back: Gateway,
    caller: Target,
    environment: Environment,
    _dirs: [tempfile::TempDir; 2],
}

fn read(g: &Gateway, name: &str) -> String {
    std::fs::read_to_string(g.dir.join("data/pki").join(name)).expect("it was generated")
}

fn administrator(g: &Gateway) -> Credentials {
    Credentials::Certificate(read(g, "admin.crt"), read(g, "admin.key"))
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("it can be written");
    path.display().to_string()
}

impl Two {
    /// Registers the scripted backend with the back gateway, and the back gateway with the front one.
    async fn start() -> Self {
        let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
        let front = Gateway::start(dirs[0].path());
        let serving = wire::Ca::new("the back's serving CA");
        let identity = serving.server(&["back.default.svc"]);
        let flags = [
            format!(
                "--requestheader-client-ca-file={}",
                dirs[0].path().join("data/pki/front-proxy-ca.crt").display()
            ),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            format!(
                "--tls-sni-cert-key={},{}",
                write(dirs[1].path(), "svc.crt", &identity.cert),
                write(dirs[1].path(), "svc.key", &identity.key)
            ),
        ];
        let back = Gateway::start_with(dirs[1].path(), &flags.each_ref().map(String::as_str));
        let (ca, who) = (read(&back, "ca.crt"), administrator(&back));
        let options = Options {
            backends: vec!["h1"],
            ..Options::default()
        };
        let environment = Environment::try_new(&back.url(), &ca, &who, options).await;
        let environment = environment.expect("the back takes the backends");

        let url = back.url();
        let port = url.rsplit(':').next().expect("a port");
        let bundle = base64::engine::general_purpose::STANDARD.encode(&serving.pem);
        let objects = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: back}}\nspec: {{type: ExternalName, externalName: localhost}}\n\
             ---\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: v1.{GROUP}}}\n\
             spec: {{group: {GROUP}, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, \
             caBundle: {bundle}, service: {{name: back, namespace: default, port: {port}}}}}\n"
        );
        front.kubectl_in(&["apply", "-f", "-"], Some(&objects));
        wait_for("the front reaches the backend through the back", || {
            front.curl(&[&format!("/apis/{GROUP}/v1/things")]).is_ok()
        });
        // The back makes its whole OpenAPI document for this, and the front parses it: both take more memory than the
        // streams below may.
        front.until_openapi_is_collected(&format!("v1.{GROUP}"));
        let caller = Target::try_new(&front.url(), &read(&front, "ca.crt"), &administrator(&front));
        Self {
            caller: caller.expect("the front is called"),
            front,
            back,
            environment,
            _dirs: dirs,
        }
    }

    fn backend(&self) -> &proxy_conformance::backend::Backend {
        self.environment.backend("h1").expect("it was started")
    }

    fn request(&self, method: &str, path: &str) -> Request {
        Request {
            method: method.into(),
            target: format!("/apis/{GROUP}/v1/things{path}"),
            headers: vec![(CASE_HEADER.into(), self.environment.next_case())],
            ..Request::default()
        }
    }

    async fn upgraded(&self, protocol: &str) -> Io {
        let _handle = self.backend().arm([Script {
            headers: vec![
                ("Connection".into(), "Upgrade".into()),
                ("Upgrade".into(), protocol.into()),
            ],
            upgrade: Some(b"".to_vec()),
            ..Script::default()
        }]);
        let mut request = self.request("GET", "/a/exec");
        request.headers.push(("Connection".into(), "Upgrade".into()));
        request.headers.push(("Upgrade".into(), protocol.into()));
        let (response, io) = self.caller.over_http1(&request).await.expect("both are up");
        assert_eq!(
            (response.status, response.values("upgrade")),
            (101, vec![protocol]),
            "{}",
            response.text()
        );
        io
    }

    /// The peak resident memory of each gateway, in bytes.
    fn peaks(&self) -> [usize; 2] {
        [&self.front, &self.back].map(|g| {
            let path = format!("/proc/{}/status", g.process.child.id());
            let text = std::fs::read_to_string(path).expect("it runs");
            let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak");
            let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
            kib << 10
        })
    }

    fn held_little(&self, before: [usize; 2], what: &str) {
        for (before, after) in before.into_iter().zip(self.peaks()) {
            let more = after.saturating_sub(before);
            assert!(
                more < MAX_GROWTH,
                "{what}: {STREAMED_BYTES} bytes took {more} bytes of memory at the peak"
            );
        }
    }
}

fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

/// Sends `much` bytes through an echo and compares the returned bytes.
async fn comes_back(much: usize, io: Io) {
    let (mut read, mut write) = tokio::io::split(io);
    let sending = async {
        let mut piece = vec![0; 64 << 10];
        for from in (0..much).step_by(piece.len()) {
            piece.iter_mut().enumerate().for_each(|(i, b)| *b = pattern(from + i));
            write.write_all(&piece).await.expect("it is taken");
        }
        write.flush().await.expect("it is taken");
    };
    let receiving = async {
        let (mut buffer, mut at) = (vec![0; 64 << 10], 0);
        while at < much {
            let n = read.read(&mut buffer).await.expect("it goes on");
            assert!(n > 0, "the echo continues after {at} bytes");
            let wrong = buffer[..n].iter().enumerate().find(|(i, b)| **b != pattern(at + i));
            assert_eq!(wrong, None, "behind {at}");
            at += n;
        }
    };
    tokio::join!(sending, receiving);
}

#[test]
fn upgrades_and_streams_pass_two_gateways_in_constant_memory() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let two = Two::start().await;
        for protocol in ["websocket", "SPDY/3.1"] {
            let mut io = two.upgraded(protocol).await;
            for word in ["hello", "again"] {
                io.write_all(word.as_bytes()).await.expect("it is taken");
                io.flush().await.expect("it is taken");
                let mut back = [0; 5];
                io.read_exact(&mut back).await.expect("it comes back");
                assert_eq!(back, word.as_bytes(), "{protocol}");
            }
        }
        // Warms up code and tunnel buffers, which then do not count as growth.
        comes_back(STREAMED_BYTES / 8, two.upgraded("SPDY/3.1").await).await;
        let before = two.peaks();
        comes_back(STREAMED_BYTES, two.upgraded("SPDY/3.1").await).await;
        two.held_little(before, "an upgrade");

        for http in [Http::Http1, Http::Http2] {
            let before = two.peaks();
            let pieces = vec![Part::Data(vec![b'x'; 1 << 20]); STREAMED_BYTES >> 20];
            let _handle = two.backend().arm([Script {
                body: pieces,
                framing: Framing::Chunked,
                ..Script::default()
            }]);
            let response = two
                .caller
                .exchange(http, &two.request("GET", "/big"))
                .await
                .expect("both are up");
            assert_eq!(
                (response.status, response.body.data.len(), response.body.whole),
                (200, STREAMED_BYTES, true)
            );
            two.held_little(before, "an answer");

            let mut handle = two.backend().arm([Script::default()]);
            let mut request = two.request("POST", "/big");
            request.body = RequestBody::Chunked(vec![vec![b'x'; 1 << 20]; STREAMED_BYTES >> 20], vec![]);
            let response = two.caller.exchange(http, &request).await.expect("both are up");
            assert_eq!(response.status, 200, "{}", response.text());
            match handle.next().await {
                Ok(Event::Request(seen)) => assert_eq!(seen.body.data.len(), STREAMED_BYTES),
                other => panic!("{other:?}"),
            }
            two.held_little(before, "an upload");
        }
    });
}
