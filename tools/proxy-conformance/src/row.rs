//! A row: a fact, the exchange that shows it, and what is expected at both ends.

use crate::backend::{Fault, Framing, Part, Script, Seen, Turn};
use crate::client::{Ask, Got, Http, Upload};
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

/// What is expected. In texts `{base}` is `/apis/<group>/v1`, `{group}` the group, `{host}` where the gateway reaches the
/// backend, `{gateway}` the gateway's own `host:port`.
#[derive(Clone, Debug)]
pub enum Expect {
    /// The client reads this status.
    Status(u16),
    /// It reads this body.
    Body(&'static str),
    /// Its body begins so.
    BodyBegins(&'static str),
    /// These are all values of a header, in their order.
    Header(&'static str, &'static [&'static str]),
    /// One of its values is this.
    HeaderHas(&'static str, &'static str),
    /// There is no such header.
    NoHeader(&'static str),
    /// A trailer of this value.
    Trailer(&'static str, &'static str),
    /// These 1xx answers came before.
    Early(&'static [u16]),
    /// The body ends as its framing says, or it does not.
    Whole(bool),
    /// The body breaks off, or the answer does not even begin.
    BreaksOff,
    /// There is no answer at all: the connection is closed or the stream reset.
    NoAnswer,
    /// So many requests reach the backend. One, where a row does not say.
    Reached(usize),
    /// At most so many do.
    ReachedAtMost(usize),
    /// No request with this target does.
    NeverTarget(&'static str),
    /// No identity header or trailer at the backend holds the word `spoofed`.
    NotSpoofed,
    /// The backend reads this request target.
    Target(&'static str),
    /// It reads this authority.
    Authority(&'static str),
    /// It reads this method.
    Method(&'static str),
    /// It reads these values of a header, in their order.
    Sent(&'static str, &'static [&'static str]),
    /// It reads no such header.
    NotSent(&'static str),
    /// It reads this header spelled so, where it speaks HTTP/1.1.
    Spelled(&'static str),
    /// It reads a header that this holds for.
    SentLike(&'static str, fn(&str) -> bool),
    /// It reads this body.
    SentBody(&'static [u8]),
    /// It reads a body of this length.
    SentLength(usize),
    /// It reads this trailer.
    SentTrailer(&'static str, &'static str),
    /// It reads no such trailer.
    NoSentTrailer(&'static str),
    /// It is spoken to in this version of HTTP.
    Version(u8),
    /// It is shown a client certificate.
    Certified,
    /// It is asked for by this name in TLS.
    ServerName(&'static str),
    /// The status is one of these.
    StatusIn(&'static [u16]),
    /// Something else about the answer.
    Answer(&'static str, fn(&Got) -> bool),
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

/// What an exchange came to.
pub(crate) struct Outcome {
    pub(crate) got: Result<Got, String>,
    pub(crate) seen: Vec<Seen>,
}

fn differs(what: &str, wanted: impl std::fmt::Debug, is: impl std::fmt::Debug) -> Result<(), String> {
    Err(format!("{what} is {is:?}, not {wanted:?}"))
}

fn same<T: std::fmt::Debug + PartialEq>(what: &str, wanted: T, is: T) -> Result<(), String> {
    if wanted == is {
        Ok(())
    } else {
        differs(what, wanted, is)
    }
}

impl Expect {
    /// # Errors
    /// What is otherwise.
    pub(crate) fn check(&self, o: &Outcome, fill: &dyn Fn(&str) -> String) -> Result<(), String> {
        let got = || o.got.as_ref().map_err(|e| format!("no answer: {e}"));
        let first = || o.seen.first().ok_or("nothing reached the backend");
        let filled = |all: &[&str]| all.iter().map(|v| fill(v)).collect::<Vec<_>>();
        match self {
            Self::Status(status) => same("the status", *status, got()?.status),
            Self::Body(text) => same("the body", fill(text), got()?.text()),
            Self::BodyBegins(text) => {
                let (wanted, is) = (fill(text), got()?.text());
                if is.starts_with(&wanted) {
                    Ok(())
                } else {
                    differs("the body", wanted, is)
                }
            }
            Self::Header(name, all) => {
                let is: Vec<String> = got()?.values(name).into_iter().map(str::to_owned).collect();
                same(name, filled(all), is)
            }
            Self::HeaderHas(name, value) => {
                let is = got()?.values(name);
                if is.contains(&fill(value).as_str()) {
                    Ok(())
                } else {
                    differs(name, value, is)
                }
            }
            Self::NoHeader(name) => same(name, vec![], got()?.values(name)),
            Self::Trailer(name, value) => {
                let got = got()?;
                same(name, vec![*value], crate::wire::values(&got.body.trailers, name))
            }
            Self::Early(early) => same("what comes before", early.to_vec(), got()?.early.clone()),
            Self::Whole(whole) => same("whether the body is whole", *whole, got()?.body.whole),
            Self::BreaksOff => match &o.got {
                Ok(got) if got.body.whole => differs("the body", "broken off", got.text()),
                _ => Ok(()),
            },
            Self::NoAnswer => match &o.got {
                Err(_) => Ok(()),
                Ok(got) => differs("the answer", "none", got.status),
            },
            Self::Reached(n) => same("the number of requests at the backend", *n, o.seen.len()),
            Self::ReachedAtMost(n) => {
                if o.seen.len() <= *n {
                    Ok(())
                } else {
                    differs("the number of requests", n, o.seen.len())
                }
            }
            Self::NeverTarget(text) => {
                let never = fill(text);
                match o.seen.iter().find(|s| s.target == never) {
                    None => Ok(()),
                    Some(seen) => Err(format!("this reached the backend: {seen:?}")),
                }
            }
            Self::NotSpoofed => o.seen.iter().try_for_each(not_spoofed),
            Self::Target(text) => same("the target at the backend", fill(text), first()?.target.clone()),
            Self::Authority(text) => same("the authority at the backend", fill(text), first()?.authority.clone()),
            Self::Method(text) => same("the method at the backend", (*text).to_owned(), first()?.method.clone()),
            Self::Sent(name, all) => {
                let is: Vec<String> = first()?.values(name).into_iter().map(str::to_owned).collect();
                same(&format!("{name} at the backend"), filled(all), is)
            }
            Self::NotSent(name) => same(&format!("{name} at the backend"), vec![], first()?.values(name)),
            Self::Spelled(name) => {
                let seen = first()?;
                if seen.version == 2 || seen.headers.iter().any(|(n, _)| n == name) {
                    return Ok(());
                }
                let names: Vec<&String> = seen.headers.iter().map(|(n, _)| n).collect();
                differs("the spelling", name, names)
            }
            Self::SentLike(name, holds) => {
                let is = first()?.values(name);
                if is.iter().any(|v| holds(v)) {
                    Ok(())
                } else {
                    differs(name, "as expected", is)
                }
            }
            Self::SentBody(data) => same("the body at the backend", data.to_vec(), first()?.body.data.clone()),
            Self::SentLength(n) => same("the length of the body at the backend", *n, first()?.body.data.len()),
            Self::Version(version) => same("the version of HTTP at the backend", *version, first()?.version),
            Self::Certified => same("whether a client certificate is shown", true, first()?.certified),
            Self::ServerName(name) => same("the name in TLS", fill(name), first()?.server_name.clone()),
            Self::StatusIn(all) => {
                let is = got()?.status;
                if all.contains(&is) {
                    Ok(())
                } else {
                    differs("the status", all, is)
                }
            }
            Self::SentTrailer(name, value) => {
                let seen = first()?;
                same(name, vec![*value], crate::wire::values(&seen.body.trailers, name))
            }
            Self::NoSentTrailer(name) => {
                let seen = first()?;
                same(name, vec![], crate::wire::values(&seen.body.trailers, name))
            }
            Self::Answer(what, holds) => {
                let got = got()?;
                if holds(got) {
                    Ok(())
                } else {
                    Err(format!("{what} does not hold: {got:?}"))
                }
            }
        }
    }
}

/// # Errors
/// The identity that the client made up.
pub(crate) fn not_spoofed(seen: &Seen) -> Result<(), String> {
    let all = seen.headers.iter().chain(&seen.body.trailers);
    let mut stated = all.filter(|(n, _)| {
        let name = n.to_ascii_lowercase();
        name.starts_with("x-remote-") || name.starts_with("impersonate-")
    });
    match stated.find(|(_, v)| v.contains("spoofed")) {
        None => Ok(()),
        Some((n, v)) => Err(format!("the backend reads {n}: {v}")),
    }
}
