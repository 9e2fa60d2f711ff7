//! A case: a claim, the exchange that shows it, and the expectations at both ends.

mod expect;

pub use expect::Expect;
pub(crate) use expect::{Outcome, not_spoofed};

use crate::backend::{Fault, Framing, Part, Script, StreamAction};
use crate::client::{Http, Request, RequestBody};
use crate::environment::{Need, Scene};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// How binding a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every gateway must behave so.
    Must,
    /// kube-apiserver v1.36 behaves so, and another gateway may legitimately differ.
    Upstream,
    /// kube-apiserver v1.36 does not behave so, but a gateway can.
    Beyond,
}

/// The result of a scenario: success, or the failure as text.
pub type ScenarioFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// A case that consists of several exchanges.
pub type Scenario = for<'a> fn(&'a Scene<'a>) -> ScenarioFuture<'a>;

/// One case.
#[derive(Clone)]
pub struct Case {
    /// The number of the claim, with a letter if several cases cover it.
    pub id: &'static str,
    /// The claim, as a sentence.
    pub claim: &'static str,
    /// How binding it is.
    pub level: Level,
    /// The HTTP versions towards the gateway to run it with.
    pub http_versions: &'static [Http],
    /// The backends to run it with.
    pub backends: &'static [&'static str],
    /// The capability it requires of the gateway.
    pub needs: Option<Need>,
    pub(crate) body: CaseBody,
}

#[derive(Clone)]
pub(crate) enum CaseBody {
    Exchange(Box<Exchange>),
    Scenario(Scenario),
}

/// One request and its response.
#[derive(Clone, Default)]
pub(crate) struct Exchange {
    pub(crate) request: Request,
    pub(crate) scripts: Vec<Script>,
    pub(crate) expects: Vec<Expect>,
}

const BOTH: &[Http] = &[Http::Http1, Http::Http2];

/// A case with a plain `GET {base}/things`, answered by `200 {}`, in every combination.
pub fn case(id: &'static str, claim: &'static str) -> Case {
    let request = Request {
        method: "GET".into(),
        target: "{base}/things".into(),
        ..Request::default()
    };
    Case {
        id,
        claim,
        level: Level::Must,
        http_versions: BOTH,
        backends: &["h1", "h2"],
        needs: None,
        body: CaseBody::Exchange(Box::new(Exchange {
            request,
            scripts: vec![Script::default()],
            expects: vec![],
        })),
    }
}

/// A case implemented by a function.
pub fn scenario(id: &'static str, claim: &'static str, scenario: Scenario) -> Case {
    Case {
        body: CaseBody::Scenario(scenario),
        ..case(id, claim)
    }
}

impl Case {
    fn exchange(mut self, change: impl FnOnce(&mut Exchange)) -> Self {
        if let CaseBody::Exchange(e) = &mut self.body {
            change(e);
        }
        self
    }

    fn script(self, change: impl FnOnce(&mut Script)) -> Self {
        self.exchange(|e| {
            if let Some(script) = e.scripts.last_mut() {
                change(script);
            }
        })
    }

    /// Marks a case that kube-apiserver itself does not pass.
    pub fn beyond(mut self) -> Self {
        self.level = Level::Beyond;
        self
    }

    /// Marks a case in which another gateway may legitimately differ.
    pub fn upstream(mut self) -> Self {
        self.level = Level::Upstream;
        self
    }

    /// Uses HTTP/1.1 towards the gateway only.
    pub fn http1_only(mut self) -> Self {
        self.http_versions = &[Http::Http1];
        self
    }

    /// Uses HTTP/2 towards the gateway only.
    pub fn http2_only(mut self) -> Self {
        self.http_versions = &[Http::Http2];
        self
    }

    /// Skips the case unless this requirement is met.
    pub fn needs(mut self, need: Need) -> Self {
        self.needs = Some(need);
        self
    }

    /// Uses these backends only.
    pub fn on(mut self, backends: &'static [&'static str]) -> Self {
        self.backends = backends;
        self
    }

    /// Sets the method and the request target.
    pub fn request(self, method: &str, target: &str) -> Self {
        self.exchange(|e| {
            e.request.method = method.into();
            e.request.target = target.into();
        })
    }

    /// Adds a request header.
    pub fn with(self, name: &str, value: &str) -> Self {
        self.exchange(|e| e.request.headers.push((name.into(), value.into())))
    }

    /// Sets the request's body.
    pub fn upload(self, body: RequestBody) -> Self {
        self.exchange(|e| e.request.body = body)
    }

    /// Sends these HTTP/1.1 bytes instead of a request; `{auth}` stands for the credentials' header line,
    /// `{case}` for the case's.
    pub fn raw(self, text: &str) -> Self {
        self.http1_only()
            .exchange(|e| e.request.raw = Some(text.as_bytes().to_vec()))
    }

    /// Sets the backend's response status.
    pub fn answers(self, status: u16) -> Self {
        self.script(|s| s.status = status)
    }

    /// Adds a response header.
    pub fn answer_header(self, name: &str, value: &str) -> Self {
        self.script(|s| s.headers.push((name.into(), value.into())))
    }

    /// Sets all response headers.
    pub fn answer_headers(self, headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        self.script(|s| s.headers = headers)
    }

    /// Sets the response body.
    pub fn answer_body(self, body: impl Into<Vec<u8>>) -> Self {
        self.script(|s| s.body = vec![Part::Data(body.into())])
    }

    /// Sets the response body, in parts.
    pub fn answer_parts(self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.script(|s| s.body = parts.into_iter().collect())
    }

    /// Sets how the response body is framed.
    pub fn framed(self, framing: Framing) -> Self {
        self.script(|s| s.framing = framing)
    }

    /// Adds a trailer after the response body.
    pub fn answer_trailer(self, name: &str, value: &str) -> Self {
        self.script(|s| {
            s.framing = Framing::Chunked;
            s.trailers.push((name.into(), value.into()));
        })
    }

    /// Omits the announcement of trailers from the response head.
    pub fn unannounced(self) -> Self {
        self.script(|s| s.announces = false)
    }

    /// Adds an informational response before the response.
    pub fn early(self, status: u16) -> Self {
        self.script(|s| s.early.push(status))
    }

    /// Sends exactly these bytes as the response, over HTTP/1.1.
    pub fn answer_raw(self, bytes: &[u8]) -> Self {
        self.on(&["h1"]).script(|s| s.raw = Some(bytes.to_vec()))
    }

    /// Makes the connection fail after this many bytes of the response.
    pub fn fault_after(self, after: usize, fault: Fault) -> Self {
        self.script(|s| s.fault = Some((after, fault)))
    }

    /// Sets an HTTP/2 action on the stream.
    pub fn stream_action(self, stream_action: StreamAction) -> Self {
        self.on(&["h2"]).script(|s| s.stream_action = Some(stream_action))
    }

    /// Makes the backend respond before it has read the request's body.
    pub fn answer_before_body(self) -> Self {
        self.script(|s| s.reads_body = false)
    }

    /// Delays the response.
    pub fn delayed(self, time: Duration) -> Self {
        self.script(|s| s.delay = time)
    }

    /// Starts the script for the next request; everything before applies to the previous one.
    pub fn then(self) -> Self {
        self.exchange(|e| e.scripts.push(Script::default()))
    }

    /// Sets the expectations.
    pub fn expect(self, expects: impl IntoIterator<Item = Expect>) -> Self {
        self.exchange(|e| e.expects.extend(expects))
    }
}
