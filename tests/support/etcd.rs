//! Runs etcd on loopback: one member or three, on ephemeral ports, in temporary directories. It is `etcd`
//! from PATH, or the binary that `TORANA_ETCD` names, so that the same tests run against every version at
//! hand.
#![allow(dead_code, reason = "each test binary uses only a part")]

#[path = "forwarder.rs"]
pub(crate) mod forwarder;

use forwarder::Forwarder;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Set where a missing tool must fail the tests that need it instead of skipping them (`.ci/run` does).
const REQUIRED: &str = "TORANA_REQUIRE_TOOLS";

/// The etcd to run.
fn binary() -> String {
    std::env::var("TORANA_ETCD").unwrap_or_else(|_| "etcd".to_owned())
}

/// Whether etcd and etcdctl are installed. If not, reports on standard error that the test is skipped.
///
/// # Panics
/// If one is missing and [`REQUIRED`] is set.
pub(crate) fn is_there() -> bool {
    let runs = |tool: &str, arg: &str| {
        let mut command = Command::new(tool);
        let status = command.env("ETCDCTL_API", "3").arg(arg).stdout(Stdio::null()).status();
        status.is_ok_and(|s| s.success())
    };
    let etcd = binary();
    let tools = [(&*etcd, "--version"), ("etcdctl", "version")];
    let Some((missing, _)) = tools.into_iter().find(|(tool, arg)| !runs(tool, arg)) else {
        return true;
    };
    let required = std::env::var_os(REQUIRED).is_some_and(|v| !v.is_empty());
    assert!(
        !required,
        "{missing} is not installed and {REQUIRED} is set: scripts/tools.sh installs it"
    );
    // Not `eprintln!`, which is shown for failing tests only.
    let _ = writeln!(
        std::io::stderr(),
        "skipped: there is no {missing} on this machine (scripts/tools.sh installs it)"
    );
    false
}

/// Writes a CA, a server certificate for loopback and a client certificate, in the layout that
/// [`Etcd::start_secure`] expects.
pub(crate) fn certificates(dir: &Path) {
    let write = |name: &str, text: String| std::fs::write(dir.join(name), text).expect("it can be made");
    let ca_key = KeyPair::generate().expect("it can be made");
    let mut ca = CertificateParams::new(Vec::new()).expect("it can be made");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("ca.crt", ca.self_signed(&ca_key).expect("it can be made").pem());
    let issuer = Issuer::new(ca, ca_key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().expect("it can be made");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), name.to_owned()]).expect("it can be made");
        write(
            &format!("{name}.crt"),
            params.signed_by(&key, &issuer).expect("it can be made").pem(),
        );
        write(&format!("{name}.key"), key.serialize_pem());
    }
}

/// Currently unused ports. They are below the ephemeral ports (32768 and above), which the kernel gives to
/// whoever asks for any port or connects somewhere: a member needs its ports again when it is restarted, while
/// gateways try to connect to them.
fn ports(n: usize) -> Vec<u16> {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test programs that run at the same time begin at different ports.
    let begin = std::process::id() % COUNT * 199;
    let next = |_| {
        let at = (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        u16::try_from(FIRST + at).expect("it is below 32768")
    };
    let unused = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..COUNT).map(next).filter(unused).take(n).collect()
}

struct Member {
    args: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    port: u16,
}

/// A running cluster. Its members are killed when it is dropped.
pub(crate) struct Etcd {
    members: Vec<Member>,
    /// Forwarders in front of each member's peer port, if its network can be cut.
    between: Vec<Forwarder>,
    dir: tempfile::TempDir,
    scheme: &'static str,
    /// etcdctl arguments besides the endpoints.
    ctl: Vec<String>,
}

impl Etcd {
    pub(crate) fn start(members: usize) -> Self {
        Self::start_with(members, &[])
    }

    /// One member with TLS that requires a client certificate. The directory holds `ca.crt`, `server.crt`,
    /// `server.key`, `client.crt`, `client.key`.
    pub(crate) fn start_secure(files: &std::path::Path) -> Self {
        let at = |name: &str| files.join(name).display().to_string();
        let more = [
            format!("--cert-file={}", at("server.crt")),
            format!("--key-file={}", at("server.key")),
            format!("--trusted-ca-file={}", at("ca.crt")),
            "--client-cert-auth".to_owned(),
        ];
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        Self::start_at("https", 1, &more, false)
    }

    /// Starts members whose peer network can be cut.
    pub(crate) fn start_apart(members: usize) -> Self {
        Self::start_at("http", members, &[], true)
    }

    pub(crate) fn start_with(members: usize, more: &[&str]) -> Self {
        Self::start_at("http", members, more, false)
    }

    fn start_at(scheme: &'static str, members: usize, more: &[&str], apart: bool) -> Self {
        // Another test may take a port between its choice and its use, so retry.
        for _ in 0..5 {
            let dir = tempfile::tempdir().expect("a directory");
            let ports = ports(members * 2);
            let (clients, peers) = ports.split_at(members);
            let between: Vec<_> = match apart {
                true => peers.iter().map(|p| Forwarder::between_members(*p)).collect(),
                false => Vec::new(),
            };
            let advertised = |i: usize| between.get(i).map_or(peers[i], Forwarder::port);
            let names = (0..peers.len()).map(|i| format!("m{i}=http://127.0.0.1:{}", advertised(i)));
            let names: Vec<String> = names.collect();
            let members = (0..members).map(|i| {
                let (client, peer) = (clients[i], peers[i]);
                let at = dir.path().join(format!("m{i}-{client}"));
                let mut args: Vec<String> = [
                    format!("--name=m{i}"),
                    format!("--data-dir={}", at.display()),
                    format!("--listen-client-urls={scheme}://127.0.0.1:{client}"),
                    format!("--advertise-client-urls={scheme}://127.0.0.1:{client}"),
                    format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                    format!("--initial-advertise-peer-urls=http://127.0.0.1:{}", advertised(i)),
                    format!("--initial-cluster={}", names.join(",")),
                    format!("--initial-cluster-token=t{}", clients[0]),
                    // A member that gets no CPU for a second must not lose its leadership.
                    "--heartbeat-interval=100".to_owned(),
                    "--election-timeout=2000".to_owned(),
                ]
                .into();
                args.extend(more.iter().map(|a| (*a).to_owned()));
                Member {
                    args,
                    log: dir.path().join(format!("log{i}")),
                    child: None,
                    port: client,
                }
            });
            let members: Vec<_> = members.collect();
            let mut cluster = Self {
                members,
                between,
                dir,
                scheme,
                ctl: Vec::new(),
            };
            let count = cluster.members.len();
            (0..count).for_each(|i| cluster.restart(i));
            if (0..count).all(|i| cluster.is_up(i, Duration::from_secs(60))) {
                return cluster;
            }
        }
        panic!("etcd does not start");
    }

    /// Waits until a member serves clients; false if it has ended, because one of its ports is taken.
    fn is_up(&mut self, i: usize, within: Duration) -> bool {
        let until = Instant::now() + within;
        while Instant::now() < until {
            // Not by connecting: the port may be another process's, and a member listens before it serves.
            let log = std::fs::read_to_string(&self.members[i].log).unwrap_or_default();
            if log.contains("ready to serve client requests") {
                return true;
            }
            let child = self.members[i].child.as_mut().expect("it was started");
            if child.try_wait().expect("it can be asked").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub(crate) fn servers(&self) -> Vec<String> {
        let url = |m: &Member| format!("{}://127.0.0.1:{}", self.scheme, m.port);
        self.members.iter().map(url).collect()
    }

    /// The client port of a member, for a forwarder in front of it.
    pub(crate) fn port(&self, i: usize) -> u16 {
        self.members[i].port
    }

    /// Messages that the first member has received on watch streams: creations of watches and progress
    /// requests.
    pub(crate) fn watch_messages(&self) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.members[0].port)).expect("it listens");
        let request = b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let line = text
            .lines()
            .find(|l| l.starts_with("grpc_server_msg_received_total{grpc_method=\"Watch\""));
        let value = line.and_then(|l| l.rsplit(' ').next()).expect("it counts messages");
        value.parse::<f64>().expect("a number") as u64
    }

    /// The leader on which all answering members agree; waits for one.
    pub(crate) fn leader(&self) -> usize {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            // Fields of each endpoint: address, id, version, size, whether it is the leader, …
            let status = self.try_ctl(&["endpoint", "status"]).unwrap_or_default();
            let leads = |line: &&str| line.split(", ").nth(4) == Some("true");
            let address = status.lines().find(leads).and_then(|l| l.split(", ").next());
            let at = address.and_then(|a| self.servers().iter().position(|s| s == a));
            match at {
                Some(leader) => return leader,
                None => assert!(Instant::now() < until, "there is no leader: {status}"),
            }
        }
    }

    /// Cuts a member off from all other members.
    pub(crate) fn isolate(&self, i: usize) {
        let members = self.ctl(&["member", "list"]);
        let id = |n: usize| {
            let name = format!("m{n}");
            let line = members.lines().find(|l| l.split(", ").nth(2) == Some(&name));
            let id = line.and_then(|l| l.split(", ").next());
            id.expect("it is a member").to_owned()
        };
        for other in (0..self.members.len()).filter(|n| *n != i) {
            self.between[i].cut_member(&id(other));
            self.between[other].cut_member(&id(i));
        }
    }

    /// Reconnects the members.
    pub(crate) fn heal(&self) {
        self.between.iter().for_each(Forwarder::heal);
    }

    /// Kills a member with SIGKILL.
    pub(crate) fn kill(&mut self, i: usize) {
        if let Some(mut child) = self.members[i].child.take() {
            child.kill().expect("it is ours");
            child.wait().expect("it ends");
        }
    }

    /// Sends a signal to a member's process. A stopped member looks like a partitioned one to the others.
    pub(crate) fn signal(&self, i: usize, name: &str) {
        let child = self.members[i].child.as_ref().expect("it runs");
        let done = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(child.id().to_string())
            .status();
        assert!(done.expect("kill runs").success());
    }

    pub(crate) fn restart(&mut self, i: usize) {
        self.kill(i);
        let member = &mut self.members[i];
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&member.log)
            .expect("a log");
        let child = Command::new(binary())
            .args(&member.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        member.child = Some(child);
    }

    /// Makes etcdctl authenticate as this user from now on.
    pub(crate) fn log_in(&mut self, user: &str) {
        self.ctl = vec![format!("--user={user}")];
    }

    /// Runs etcdctl and returns its output.
    pub(crate) fn ctl(&self, args: &[&str]) -> String {
        self.try_ctl(args)
            .unwrap_or_else(|why| panic!("etcdctl {args:?}: {why}"))
    }

    fn etcdctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.servers().join(",")))
            .args(&self.ctl)
            .args(args);
        command
    }

    /// Runs etcdctl and returns its output as raw bytes.
    pub(crate) fn ctl_bytes(&self, args: &[&str]) -> Vec<u8> {
        let out = self.etcdctl(args).output().expect("etcdctl runs");
        assert!(
            out.status.success(),
            "etcdctl {args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        out.stdout
    }

    /// Writes a raw value.
    pub(crate) fn put_bytes(&self, key: &str, value: &[u8]) {
        let mut child = self
            .etcdctl(&["put", key])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("etcdctl runs");
        let stdin = child.stdin.take();
        stdin.expect("it is piped").write_all(value).expect("etcdctl reads it");
        assert!(child.wait().expect("etcdctl ends").success(), "put {key}");
    }

    /// Runs etcdctl. Returns its output, or its error message.
    pub(crate) fn try_ctl(&self, args: &[&str]) -> Result<String, String> {
        let out = self.etcdctl(args).output().expect("etcdctl runs");
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|i| self.kill(i));
    }
}
