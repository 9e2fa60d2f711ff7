//! A row: a fact, the exchange that shows it, and what is expected at both ends.

mod expect;

pub use expect::Expect;
pub(crate) use expect::{Outcome, not_spoofed};

use crate::backend::{Fault, Framing, Part, Script, Turn};
use crate::client::{Ask, Http, Upload};
use crate::world::Scene;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// How much a fact binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every gateway has to do this.
    Must,
    /// What kube-apiserver v1.36 does, where another gateway may choose otherwise.
    Upstream,
    /// What kube-apiserver v1.36 does not do, and a gateway can.
    Beyond,
}

/// What a gateway, or the caller, has to be like for a row to mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It refuses redirects, as it does unless told otherwise.
    RedirectsRefused,
    /// It passes redirects on (`--redirects=passed`).
    RedirectsPassed,
    /// The certificate of a front proxy that it believes is at hand (`--front-proxy-certificate`).
    FrontProxy,
}

/// What a story ends with: nothing, or what is wrong.
pub type Told<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// A row that is more than one exchange.
pub type Story = for<'a> fn(&'a Scene<'a>) -> Told<'a>;

/// One fact.
#[derive(Clone)]
pub struct Row {
    /// The number of the fact, with a letter where it takes several rows.
    pub id: &'static str,
    /// The fact, as a sentence.
    pub fact: &'static str,
    /// How much it binds.
    pub level: Level,
    /// The versions of HTTP towards the gateway that it is shown over.
    pub front: &'static [Http],
    /// The backends that it is shown with.
    pub places: &'static [&'static str],
    /// What it cannot be shown without.
    pub needs: Option<Need>,
    pub(crate) shows: Shows,
}

#[derive(Clone)]
pub(crate) enum Shows {
    Exchange(Box<Exchange>),
    Story(Story),
}

/// One request, one answer.
#[derive(Clone, Default)]
pub(crate) struct Exchange {
    pub(crate) ask: Ask,
    pub(crate) scripts: Vec<Script>,
    pub(crate) expects: Vec<Expect>,
}

const BOTH: &[Http] = &[Http::One, Http::Two];

/// A row about a plain `GET {base}/things`, answered by `200 {}`, over every combination.
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

/// A row that tells a story.
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

    /// kube-apiserver does not do this itself.
    pub fn beyond(mut self) -> Self {
        self.level = Level::Beyond;
        self
    }

    /// Another gateway may choose otherwise.
    pub fn upstream(mut self) -> Self {
        self.level = Level::Upstream;
        self
    }

    /// Towards the gateway over HTTP/1.1 only.
    pub fn front1(mut self) -> Self {
        self.front = &[Http::One];
        self
    }

    /// Towards the gateway over HTTP/2 only.
    pub fn front2(mut self) -> Self {
        self.front = &[Http::Two];
        self
    }

    /// Left out where this is not so.
    pub fn needs(mut self, need: Need) -> Self {
        self.needs = Some(need);
        self
    }

    /// With these backends only.
    pub fn at(mut self, places: &'static [&'static str]) -> Self {
        self.places = places;
        self
    }

    /// The method and the request target.
    pub fn ask(self, method: &str, target: &str) -> Self {
        self.exchange(|e| {
            e.ask.method = method.into();
            e.ask.target = target.into();
        })
    }

    /// One more header.
    pub fn with(self, name: &str, value: &str) -> Self {
        self.exchange(|e| e.ask.headers.push((name.into(), value.into())))
    }

    /// The request's body.
    pub fn upload(self, body: Upload) -> Self {
        self.exchange(|e| e.ask.body = body)
    }

    /// HTTP/1.1 bytes instead of a request; `{auth}` is the line of the credentials, `{row}` that of the row.
    pub fn raw(self, text: &str) -> Self {
        self.front1().exchange(|e| e.ask.raw = Some(text.as_bytes().to_vec()))
    }

    /// The backend's status.
    pub fn answers(self, status: u16) -> Self {
        self.script(|s| s.status = status)
    }

    /// A header of its answer.
    pub fn answer_header(self, name: &str, value: &str) -> Self {
        self.script(|s| s.headers.push((name.into(), value.into())))
    }

    /// The headers of its answer, all of them.
    pub fn answer_headers(self, headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        self.script(|s| s.headers = headers)
    }

    /// Its body.
    pub fn answer_body(self, body: impl Into<Vec<u8>>) -> Self {
        self.script(|s| s.body = vec![Part::Data(body.into())])
    }

    /// Its body, in pieces.
    pub fn answer_parts(self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.script(|s| s.body = parts.into_iter().collect())
    }

    /// How its body is framed.
    pub fn framed(self, framing: Framing) -> Self {
        self.script(|s| s.framing = framing)
    }

    /// What comes behind its body.
    pub fn answer_trailer(self, name: &str, value: &str) -> Self {
        self.script(|s| {
            s.framing = Framing::Chunked;
            s.trailers.push((name.into(), value.into()));
        })
    }

    /// The head of the answer does not say which trailers come.
    pub fn unannounced(self) -> Self {
        self.script(|s| s.announces = false)
    }

    /// 1xx answers before it.
    pub fn early(self, status: u16) -> Self {
        self.script(|s| s.early.push(status))
    }

    /// Exactly these bytes, over HTTP/1.1.
    pub fn answer_raw(self, bytes: &[u8]) -> Self {
        self.at(&["h1"]).script(|s| s.raw = Some(bytes.to_vec()))
    }

    /// The connection fails after so many bytes of the answer.
    pub fn fails(self, after: usize, fault: Fault) -> Self {
        self.script(|s| s.fault = Some((after, fault)))
    }

    /// What HTTP/2 does instead.
    pub fn turns(self, turn: Turn) -> Self {
        self.at(&["h2"]).script(|s| s.turn = Some(turn))
    }

    /// The backend answers before it has read the request's body.
    pub fn unread(self) -> Self {
        self.script(|s| s.reads_body = false)
    }

    /// The answer comes so much later.
    pub fn late(self, time: Duration) -> Self {
        self.script(|s| s.delay = time)
    }

    /// What has been said so far is what the first request gets; what follows is the next one's.
    pub fn then(self) -> Self {
        self.exchange(|e| e.scripts.push(Script::default()))
    }

    /// What is expected.
    pub fn expect(self, expects: impl IntoIterator<Item = Expect>) -> Self {
        self.exchange(|e| e.expects.extend(expects))
    }
}
