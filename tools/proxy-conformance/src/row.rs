//! A case: a fact, the exchange that shows it, and the expectations at both ends.

mod expect;

pub use expect::Expect;
pub(crate) use expect::{Outcome, not_spoofed};

use crate::backend::{Fault, Framing, Part, Script, Turn};
use crate::client::{Ask, Http, Upload};
use crate::world::Scene;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// How binding a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every gateway must behave so.
    Must,
    /// kube-apiserver v1.36 behaves so, and another gateway may legitimately differ.
    Upstream,
    /// kube-apiserver v1.36 does not behave so, but a gateway can.
    Beyond,
}

/// A property of the gateway or its configuration that a case requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It refuses redirects (the default).
    RedirectsRefused,
    /// It passes redirects on (`--redirects=passed`).
    RedirectsPassed,
    /// It trusts a front proxy whose certificate is available (`--front-proxy-certificate`).
    FrontProxy,
}

/// The result of a scenario: success, or what is wrong.
pub type Told<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// A case that consists of several exchanges.
pub type Story = for<'a> fn(&'a Scene<'a>) -> Told<'a>;

/// One case.
#[derive(Clone)]
pub struct Row {
    /// The number of the fact, with a letter if several cases cover it.
    pub id: &'static str,
    /// The fact, as a sentence.
    pub fact: &'static str,
    /// How binding it is.
    pub level: Level,
    /// The HTTP versions towards the gateway to run it with.
    pub front: &'static [Http],
    /// The backends to run it with.
    pub places: &'static [&'static str],
    /// What it requires.
    pub needs: Option<Need>,
    pub(crate) shows: Shows,
}

#[derive(Clone)]
pub(crate) enum Shows {
    Exchange(Box<Exchange>),
    Story(Story),
}

/// One request and its response.
#[derive(Clone, Default)]
pub(crate) struct Exchange {
    pub(crate) ask: Ask,
    pub(crate) scripts: Vec<Script>,
    pub(crate) expects: Vec<Expect>,
}

const BOTH: &[Http] = &[Http::One, Http::Two];

/// A case with a plain `GET {base}/things`, answered by `200 {}`, in every combination.
pub fn row(id: &'static str, fact: &'static str) -> Row {
    let ask = Ask {
        method: "GET".into(),
        target: "{base}/things".into(),
        ..Ask::default()
    };
    Row {
        id,
        fact,
        level: Level::Must,
        front: BOTH,
        places: &["h1", "h2"],
        needs: None,
        shows: Shows::Exchange(Box::new(Exchange {
            ask,
            scripts: vec![Script::default()],
            expects: vec![],
        })),
    }
}

/// A case implemented by a function.
pub fn story(id: &'static str, fact: &'static str, story: Story) -> Row {
    Row {
        shows: Shows::Story(story),
        ..row(id, fact)
    }
}

impl Row {
    fn exchange(mut self, change: impl FnOnce(&mut Exchange)) -> Self {
        if let Shows::Exchange(e) = &mut self.shows {
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
    pub fn front1(mut self) -> Self {
        self.front = &[Http::One];
        self
    }

    /// Uses HTTP/2 towards the gateway only.
    pub fn front2(mut self) -> Self {
        self.front = &[Http::Two];
        self
    }

    /// Skips the case unless this requirement is met.
    pub fn needs(mut self, need: Need) -> Self {
        self.needs = Some(need);
        self
    }

    /// Uses these backends only.
    pub fn at(mut self, places: &'static [&'static str]) -> Self {
        self.places = places;
        self
    }

    /// Sets the method and the request target.
    pub fn ask(self, method: &str, target: &str) -> Self {
        self.exchange(|e| {
            e.ask.method = method.into();
            e.ask.target = target.into();
        })
    }

    /// Adds a request header.
    pub fn with(self, name: &str, value: &str) -> Self {
        self.exchange(|e| e.ask.headers.push((name.into(), value.into())))
    }

    /// Sets the request's body.
    pub fn upload(self, body: Upload) -> Self {
        self.exchange(|e| e.ask.body = body)
    }

    /// Sends these HTTP/1.1 bytes instead of a request; `{auth}` stands for the credentials' header line, `{row}` for
    /// the case's.
    pub fn raw(self, text: &str) -> Self {
        self.front1().exchange(|e| e.ask.raw = Some(text.as_bytes().to_vec()))
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
        self.at(&["h1"]).script(|s| s.raw = Some(bytes.to_vec()))
    }

    /// Makes the connection fail after this many bytes of the response.
    pub fn fails(self, after: usize, fault: Fault) -> Self {
        self.script(|s| s.fault = Some((after, fault)))
    }

    /// Sets an HTTP/2 action on the stream.
    pub fn turns(self, turn: Turn) -> Self {
        self.at(&["h2"]).script(|s| s.turn = Some(turn))
    }

    /// Makes the backend respond before it has read the request's body.
    pub fn unread(self) -> Self {
        self.script(|s| s.reads_body = false)
    }

    /// Delays the response.
    pub fn late(self, time: Duration) -> Self {
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
