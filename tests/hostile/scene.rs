//! The context of a running case: a gateway, an identity, and a record of the responses.

use crate::attackers::Attacker;
use crate::frames;
use crate::prober::Prober;
use crate::scale::Scale;
use crate::stage::Stage;
use crate::wire::{self, GatewayResponse, PeerCertificate, Request, Tls};
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

/// The source address of attackers. The prober uses 127.0.0.1.
pub(crate) const FROM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);

pub(crate) struct Scene<'a> {
    pub scale: &'a Scale,
    pub stage: &'a Stage,
    pub prober: &'a Prober,
    pub attacker: Attacker,
    /// The slowest response.
    pub slowest: Duration,
    /// Responses by status code, in order of first occurrence.
    pub codes: Vec<(u16, usize)>,
    /// Most bytes of bodies in flight at once.
    pub in_flight: u64,
    pub problems: Vec<String>,
    /// Collections and objects that an administrator deletes afterwards.
    pub leftovers: Vec<String>,
}

impl Scene<'_> {
    pub(crate) fn token(&self) -> &'static str {
        self.attacker.token()
    }

    /// Sends one request over a new connection. A missing response is recorded as a problem.
    pub(crate) fn send(&mut self, request: &Request) -> Option<GatewayResponse> {
        self.send_all(std::slice::from_ref(request)).pop().flatten()
    }

    /// Sends all requests concurrently, each over a new connection.
    pub(crate) fn send_all(&mut self, requests: &[Request]) -> Vec<Option<GatewayResponse>> {
        let bodies: u64 = requests.iter().map(|r| r.body.len() as u64).sum();
        self.in_flight = self.in_flight.max(bodies);
        let mut open = Vec::new();
        for request in requests {
            self.leftover(request);
            let mut io = match self.stage.target.tls(FROM) {
                Ok(io) => io,
                Err(e) => {
                    self.problems.push(format!("no connection: {e}"));
                    open.push(None);
                    continue;
                }
            };
            // The gateway may refuse and close before the whole body is sent.
            let _ = wire::send(&mut io, request, self.token());
            open.push(Some((io, Instant::now())));
        }
        let mut answers = Vec::new();
        for connection in open {
            answers.push(connection.and_then(|(mut io, sent)| self.answered(&mut io, sent)));
        }
        answers
    }

    /// Sends the requests one after the other over one connection, until it closes.
    pub(crate) fn send_in_sequence(&mut self, requests: &[Request]) -> Vec<GatewayResponse> {
        let mut answers = Vec::new();
        let Some(mut io) = self.connect() else { return answers };
        for request in requests {
            self.in_flight = self.in_flight.max(request.body.len() as u64);
            self.leftover(request);
            let _ = wire::send(&mut io, request, self.token());
            let Some(answer) = self.answered(&mut io, Instant::now()) else {
                break;
            };
            let closed = answer.header("connection") == Some("close");
            answers.push(answer);
            if closed {
                let Some(again) = self.connect() else { break };
                io = again;
            }
        }
        answers
    }

    /// Reads and records the response to a request on `io`.
    pub(crate) fn answered(&mut self, io: &mut Tls, sent: Instant) -> Option<GatewayResponse> {
        match wire::answer(io, self.scale.answer) {
            Ok(answer) => {
                self.slowest = self.slowest.max(sent.elapsed());
                self.count(answer.code);
                // Upstream answers some patch errors with 500, so only a 500 caused by a panic is a problem.
                if answer.code == 500 && answer.text().contains("panic") {
                    self.problems.push(format!("500: {:.300}", answer.text()));
                }
                Some(answer)
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                self.slowest = self.slowest.max(sent.elapsed());
                self.problems.push(format!("no answer within {:?}", self.scale.answer));
                None
            }
            // Closing the connection is also a refusal.
            Err(_) => {
                self.slowest = self.slowest.max(sent.elapsed());
                self.count(0);
                None
            }
        }
    }

    fn count(&mut self, code: u16) {
        match self.codes.iter_mut().find(|(c, _)| *c == code) {
            Some((_, n)) => *n += 1,
            None => self.codes.push((code, 1)),
        }
    }

    fn leftover(&mut self, request: &Request) {
        let path = request.path.split('?').next().unwrap_or("");
        let clean = path.starts_with("/api") && path.contains("/namespaces/evil/");
        // Attackers need some of these objects.
        let clean = clean && !path.ends_with("/rolebindings") && !path.contains("/serviceaccounts");
        if request.method == "POST" && clean && !self.leftovers.iter().any(|p| p == path) {
            self.leftovers.push(path.to_owned());
        }
    }

    /// Registers an object for deletion by an administrator afterwards.
    pub(crate) fn delete_afterwards(&mut self, path: impl Into<String>) {
        self.leftovers.push(path.into());
    }

    /// A TLS connection for HTTP/1.1.
    pub(crate) fn connect(&mut self) -> Option<Tls> {
        let made = self.stage.target.tls(FROM);
        self.or_problem(made)
    }

    /// As [`connect`](Self::connect), with a client certificate.
    pub(crate) fn connect_as(&mut self, certificate: &PeerCertificate) -> Option<Tls> {
        let made = self.stage.target.tls_as(FROM, certificate);
        self.or_problem(made)
    }

    /// A TCP connection on which nothing has been sent.
    pub(crate) fn tcp(&mut self) -> Option<TcpStream> {
        let made = self.stage.target.tcp(FROM);
        self.or_problem(made)
    }

    /// An HTTP/2 connection on which preface and settings have been sent.
    pub(crate) fn http2(&mut self) -> Option<frames::Connection> {
        let made = self.stage.target.tls_http2(FROM).and_then(frames::Connection::open);
        self.or_problem(made)
    }

    fn or_problem<T>(&mut self, made: io::Result<T>) -> Option<T> {
        made.map_err(|e| self.problems.push(format!("no connection: {e}"))).ok()
    }

    /// Sends raw bytes over TLS. The content of the response does not matter, only that one arrives or the
    /// connection ends.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> Option<GatewayResponse> {
        let mut io = self.connect()?;
        let _ = io::Write::write_all(&mut io, bytes);
        let _ = io::Write::flush(&mut io);
        self.answered(&mut io, Instant::now())
    }

    /// Keeps the case's resources for a few more probes.
    pub(crate) fn hold(&mut self) {
        if !self
            .prober
            .rounds(if self.scale.full { 8 } else { 2 }, self.scale.answer)
        {
            self.problems.push("the prober gets no answer".to_owned());
        }
    }

    /// Polls until `there` holds; records a problem if it does not in time.
    pub(crate) fn until(&mut self, what: &str, mut there: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + self.scale.answer;
        while !there(self) {
            if Instant::now() > end {
                self.problems.push(format!("{what} within {:?}", self.scale.answer));
                return;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    pub(crate) fn expect(&mut self, claim: bool, what: impl FnOnce() -> String) {
        if !claim {
            self.problems.push(what());
        }
    }
}
