//! Expectations at both ends of an exchange.

use crate::backend::ReceivedRequest;
use crate::client::Response;

/// An expectation. In texts, `{base}` stands for `/apis/<group>/v1`, `{group}` for the group, `{host}` for
/// the backend's address as the gateway uses it, and `{gateway}` for the gateway's own `host:port`.
#[derive(Clone, Debug)]
pub enum Expect {
    /// The client receives this status.
    Status(u16),
    /// The client receives this body.
    Body(&'static str),
    /// The client's body has this prefix.
    BodyBegins(&'static str),
    /// The client receives exactly these values of a header, in order.
    Header(&'static str, &'static [&'static str]),
    /// The client receives this value of a header, possibly among others.
    HeaderHas(&'static str, &'static str),
    /// The client receives no such header.
    NoHeader(&'static str),
    /// The client receives a trailer with this value.
    Trailer(&'static str, &'static str),
    /// The client receives these informational responses first.
    Early(&'static [u16]),
    /// Whether the client's body is complete according to its framing.
    Whole(bool),
    /// The client's body breaks off, or there is no response at all.
    BreaksOff,
    /// There is no response: the connection is closed or the stream reset.
    NoAnswer,
    /// This many requests reach the backend. The default is one.
    Reached(usize),
    /// At most this many requests reach the backend.
    ReachedAtMost(usize),
    /// No request with this target reaches the backend.
    NeverTarget(&'static str),
    /// No identity header or trailer at the backend contains the word `spoofed`.
    NotSpoofed,
    /// The backend receives this request target.
    Target(&'static str),
    /// The backend receives this authority.
    Authority(&'static str),
    /// The backend receives this method.
    Method(&'static str),
    /// The backend receives these values of a header, in order.
    Sent(&'static str, &'static [&'static str]),
    /// The backend receives no such header.
    NotSent(&'static str),
    /// The backend receives this header with this spelling, over HTTP/1.1.
    Spelled(&'static str),
    /// The backend receives a header whose value satisfies the predicate.
    SentLike(&'static str, fn(&str) -> bool),
    /// The backend receives this body.
    SentBody(&'static [u8]),
    /// The backend receives a body of this length.
    SentLength(usize),
    /// The backend receives this trailer.
    SentTrailer(&'static str, &'static str),
    /// The backend receives no such trailer.
    NoSentTrailer(&'static str),
    /// The gateway uses this HTTP version towards the backend.
    Version(u8),
    /// The gateway presents a client certificate.
    Certified,
    /// The gateway sends this TLS server name.
    ServerName(&'static str),
    /// The status is one of these.
    StatusIn(&'static [u16]),
    /// Another property of the response.
    Answer(&'static str, fn(&Response) -> bool),
}

/// The observations of an exchange.
pub(crate) struct Outcome {
    pub(crate) response: Result<Response, String>,
    pub(crate) seen: Vec<ReceivedRequest>,
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
    /// The first deviation.
    pub(crate) fn check(&self, o: &Outcome, fill: &dyn Fn(&str) -> String) -> Result<(), String> {
        let response = || o.response.as_ref().map_err(|e| format!("no response: {e}"));
        let first = || o.seen.first().ok_or("nothing reached the backend");
        let filled = |all: &[&str]| all.iter().map(|v| fill(v)).collect::<Vec<_>>();
        match self {
            Self::Status(status) => same("the status", *status, response()?.status),
            Self::Body(text) => same("the body", fill(text), response()?.text()),
            Self::BodyBegins(text) => {
                let (wanted, is) = (fill(text), response()?.text());
                if is.starts_with(&wanted) {
                    Ok(())
                } else {
                    differs("the body", wanted, is)
                }
            }
            Self::Header(name, all) => {
                let is: Vec<String> = response()?.values(name).into_iter().map(str::to_owned).collect();
                same(name, filled(all), is)
            }
            Self::HeaderHas(name, value) => {
                let is = response()?.values(name);
                if is.contains(&fill(value).as_str()) {
                    Ok(())
                } else {
                    differs(name, value, is)
                }
            }
            Self::NoHeader(name) => same(name, vec![], response()?.values(name)),
            Self::Trailer(name, value) => {
                let response = response()?;
                same(name, vec![*value], crate::wire::values(&response.body.trailers, name))
            }
            Self::Early(early) => same("the informational responses", early.to_vec(), response()?.early.clone()),
            Self::Whole(whole) => same("whether the body is complete", *whole, response()?.body.whole),
            Self::BreaksOff => match &o.response {
                Ok(response) if response.body.whole => differs("the body", "broken off", response.text()),
                _ => Ok(()),
            },
            Self::NoAnswer => match &o.response {
                Err(_) => Ok(()),
                Ok(response) => differs("the response", "none", response.status),
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
            Self::Version(version) => same("the HTTP version at the backend", *version, first()?.version),
            Self::Certified => same("whether a client certificate is presented", true, first()?.certified),
            Self::ServerName(name) => same("the TLS server name", fill(name), first()?.server_name.clone()),
            Self::StatusIn(all) => {
                let is = response()?.status;
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
                let response = response()?;
                if holds(response) {
                    Ok(())
                } else {
                    Err(format!("{what} does not hold: {response:?}"))
                }
            }
        }
    }
}

/// # Errors
/// The forged identity.
pub(crate) fn not_spoofed(seen: &ReceivedRequest) -> Result<(), String> {
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
