//! Headers that need special treatment, detected in a single pass over the names. Entry point: [`Special::of`].

use super::{announce_trailers, origin, wants_trailers};
use crate::request::headers::remove_all;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Which special headers a message has. One pass over all names replaces a lookup for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Special {
    /// `Connection`
    pub connection: bool,
    /// `Host`
    pub host: bool,
    /// `Location`
    pub location: bool,
    /// `Content-Encoding`
    pub content_encoding: bool,
    /// `Accept-Encoding` or `Range`: the client has its own requirements on the response's encoding.
    form: bool,
    te: bool,
    trailer: bool,
    /// Any hop-by-hop header, including `Connection` and `Te`.
    hop_by_hop: bool,
    /// Any CORS response header.
    cors: bool,
    /// `X-Torana-Hops`
    pub hops: bool,
    /// Any header that acts on the whole origin in a browser.
    pub origin: bool,
}

enum Kind {
    Plain,
    Connection,
    Te,
    HopByHop,
    Trailer,
    Host,
    Location,
    ContentEncoding,
    Form,
    Cors,
    Hops,
    Origin,
}

fn kind(name: &HeaderName) -> Kind {
    match name.as_str() {
        "connection" => Kind::Connection,
        "te" => Kind::Te,
        "proxy-connection"
        | "keep-alive"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "transfer-encoding"
        | "upgrade" => Kind::HopByHop,
        "trailer" => Kind::Trailer,
        "host" => Kind::Host,
        "location" => Kind::Location,
        "content-encoding" => Kind::ContentEncoding,
        "accept-encoding" | "range" => Kind::Form,
        "access-control-allow-credentials"
        | "access-control-allow-headers"
        | "access-control-allow-methods"
        | "access-control-allow-origin" => Kind::Cors,
        "x-torana-hops" => Kind::Hops,
        name if origin::acts_on_it(name) => Kind::Origin,
        _ => Kind::Plain,
    }
}

impl Special {
    /// Scans the headers of a message.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            match kind(name) {
                Kind::Plain => {}
                Kind::Connection => (found.connection, found.hop_by_hop) = (true, true),
                Kind::Te => (found.te, found.hop_by_hop) = (true, true),
                Kind::HopByHop => found.hop_by_hop = true,
                Kind::Trailer => found.trailer = true,
                Kind::Host => found.host = true,
                Kind::Location => found.location = true,
                Kind::ContentEncoding => found.content_encoding = true,
                Kind::Form => found.form = true,
                Kind::Cors => found.cors = true,
                Kind::Hops => found.hops = true,
                Kind::Origin => found.origin = true,
            }
        }
        found
    }

    /// Removes hop-by-hop headers; returns the flags of what is left.
    pub fn strip_hop_by_hop(mut self, headers: &mut HeaderMap) -> Self {
        // Headers named in `Connection` may themselves be special, so the flags are computed again.
        if self.connection {
            remove_named(headers);
            self = Self::of(headers);
        }
        if self.hop_by_hop {
            remove_all(headers, |name| {
                matches!(kind(name), Kind::Connection | Kind::Te | Kind::HopByHop)
            });
        }
        if self.trailer {
            announce_trailers(headers);
        }
        self
    }

    /// Like [`Special::strip_hop_by_hop`], but for requests: `Te: trailers` is sent on if the client sent it.
    pub fn strip_request(self, headers: &mut HeaderMap) -> Self {
        let trailers = self.te && wants_trailers(headers);
        let rest = self.strip_hop_by_hop(headers);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        rest
    }

    /// Removes what a backend may not send to clients (hop-by-hop and CORS headers); returns the flags of what is left.
    pub fn clean_response(self, headers: &mut HeaderMap) -> Self {
        let rest = self.strip_hop_by_hop(headers);
        if rest.cors {
            remove_all(headers, |name| matches!(kind(name), Kind::Cors));
        }
        rest
    }

    /// Requests gzip from the backend if the client states no preference, as Go's transport does. Returns true if it
    /// did, and the response must be decompressed.
    pub fn ask_for_gzip(self, method: &Method, headers: &mut HeaderMap) -> bool {
        if self.form || *method == Method::HEAD {
            return false;
        }
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        true
    }
}

/// Removes the headers that `Connection` names, which are hop-by-hop too.
fn remove_named(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|n| HeaderName::from_bytes(n.trim().as_bytes()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::headers::tests::map;

    #[test]
    fn a_preference_named_in_connection_is_ignored() {
        for (names, asks) in [("accept-encoding", true), ("x", false)] {
            let mut h = map(&[("connection", names), ("accept-encoding", "br"), ("te", "trailers")]);
            let rest = Special::of(&h).strip_request(&mut h);
            assert_eq!(rest.ask_for_gzip(&Method::GET, &mut h), asks);
            let coding = if asks { "gzip" } else { "br" };
            assert_eq!(h, map(&[("accept-encoding", coding), ("te", "trailers")]));
        }
    }

    #[test]
    fn gzip_is_requested_if_the_client_has_no_preference() {
        for (header, method, want) in [
            ("accept", Method::GET, true),
            ("accept", Method::HEAD, false),
            ("range", Method::GET, false),
            ("accept-encoding", Method::GET, false),
        ] {
            let mut h = map(&[(header, "x")]);
            assert_eq!(Special::of(&h).ask_for_gzip(&method, &mut h), want, "{header} {method}");
        }
    }

    #[test]
    fn responses_lose_hop_by_hop_and_cors_headers() {
        let mut h = map(&[
            ("access-control-allow-origin", "*"),
            ("access-control-expose-headers", "x"),
            ("keep-alive", "5"),
            ("connection", "x-mine"),
            ("x-mine", "1"),
            ("location", "/"),
            ("content-encoding", "gzip"),
        ]);
        let rest = Special::of(&h).clean_response(&mut h);
        assert!(rest.location && rest.content_encoding);
        assert_eq!(
            h,
            map(&[
                ("access-control-expose-headers", "x"),
                ("location", "/"),
                ("content-encoding", "gzip"),
            ])
        );
    }
}
