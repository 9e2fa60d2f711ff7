//! Headers that need special treatment, detected in a single pass over the names. Entry point:
//! [`Special::of`].

use super::{announce_trailers, origin, wants_trailers};
use crate::request::headers::{listed, remove_all};
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// The special headers of a message. One pass over all names replaces a lookup for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Special {
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

enum HeaderClass {
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

fn class(name: &HeaderName) -> HeaderClass {
    match name.as_str() {
        "connection" => HeaderClass::Connection,
        "te" => HeaderClass::Te,
        "proxy-connection"
        | "keep-alive"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "transfer-encoding"
        | "upgrade" => HeaderClass::HopByHop,
        "trailer" => HeaderClass::Trailer,
        "host" => HeaderClass::Host,
        "location" => HeaderClass::Location,
        "content-encoding" => HeaderClass::ContentEncoding,
        "accept-encoding" | "range" => HeaderClass::Form,
        // The four that upstream removes; others, such as `Access-Control-Expose-Headers`, pass.
        "access-control-allow-credentials"
        | "access-control-allow-headers"
        | "access-control-allow-methods"
        | "access-control-allow-origin" => HeaderClass::Cors,
        "x-torana-hops" => HeaderClass::Hops,
        name if origin::acts_on_it(name) => HeaderClass::Origin,
        _ => HeaderClass::Plain,
    }
}

impl Special {
    /// Scans the headers of a message.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            match class(name) {
                HeaderClass::Plain => {}
                HeaderClass::Connection => (found.connection, found.hop_by_hop) = (true, true),
                HeaderClass::Te => (found.te, found.hop_by_hop) = (true, true),
                HeaderClass::HopByHop => found.hop_by_hop = true,
                HeaderClass::Trailer => found.trailer = true,
                HeaderClass::Host => found.host = true,
                HeaderClass::Location => found.location = true,
                HeaderClass::ContentEncoding => found.content_encoding = true,
                HeaderClass::Form => found.form = true,
                HeaderClass::Cors => found.cors = true,
                HeaderClass::Hops => found.hops = true,
                HeaderClass::Origin => found.origin = true,
            }
        }
        found
    }

    /// Removes hop-by-hop headers; returns the flags of the remaining ones.
    pub(crate) fn strip_hop_by_hop(mut self, headers: &mut HeaderMap) -> Self {
        // Headers named in `Connection` may themselves be special, so the flags are computed again.
        if self.connection {
            remove_named(headers);
            self = Self::of(headers);
        }
        if self.hop_by_hop {
            remove_all(headers, |name| {
                matches!(
                    class(name),
                    HeaderClass::Connection | HeaderClass::Te | HeaderClass::HopByHop
                )
            });
        }
        if self.trailer {
            announce_trailers(headers);
        }
        self
    }

    /// Like [`Special::strip_hop_by_hop`], but for requests: `Te: trailers` is sent on if the client sent it.
    pub(crate) fn strip_request(self, headers: &mut HeaderMap) -> Self {
        // Read before `Te` is removed as hop-by-hop.
        let trailers = self.te && wants_trailers(headers);
        let rest = self.strip_hop_by_hop(headers);
        // The proxy relays trailers itself, and gRPC servers refuse requests without this.
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        rest
    }

    /// Removes headers that a backend may not send to clients (hop-by-hop and CORS headers); returns the
    /// flags of the remaining ones.
    pub(crate) fn clean_response(self, headers: &mut HeaderMap) -> Self {
        let rest = self.strip_hop_by_hop(headers);
        if rest.cors {
            remove_all(headers, |name| matches!(class(name), HeaderClass::Cors));
        }
        rest
    }

    /// Requests gzip from the backend if the client states no preference, as Go's transport does. Returns
    /// true if it did, and the response must be decompressed.
    pub(crate) fn ask_for_gzip(self, method: &Method, headers: &mut HeaderMap) -> bool {
        if self.form || *method == Method::HEAD {
            // A range of a compressed document cannot be decompressed by itself, and a HEAD response has no
            // body.
            return false;
        }
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        true
    }
}

/// Removes the headers that `Connection` names, which are hop-by-hop too.
fn remove_named(headers: &mut HeaderMap) {
    // Collected first: the names borrow from the map that changes.
    let named: Vec<HeaderName> = listed(headers, header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::headers::tests::map;

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
