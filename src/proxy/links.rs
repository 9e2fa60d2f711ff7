//! Rewrites links of a backend to itself, in `Location` and in HTML, for clients behind the proxy. Follows
//! `apimachinery/pkg/util/proxy/transport.go`. Entry point: [`Links::rewritten`].

use super::url;
use crate::request::percent;

/// How the links of one response are rewritten.
#[derive(Clone, Debug)]
pub struct Links {
    /// Hosts that denote the backend, by its own name and by the client's.
    own: Vec<String>,
    /// Scheme and host of rewritten links; `None` leaves them relative to the server.
    base: Option<(&'static str, String)>,
    /// Path prefix under which the backend's root is served.
    prefix: String,
}

/// The parts of a link.
struct Parts<'a> {
    host: Option<&'a str>,
    path: &'a str,
    /// Query and fragment, with their delimiters.
    rest: &'a str,
}

impl Links {
    /// For a backend of an APIService. Links point to the backend's own address, whether or not the client can reach
    /// it, as upstream's do.
    pub fn to_backend(authority: &str) -> Self {
        Self {
            own: vec![authority.to_owned()],
            base: Some(("https", authority.to_owned())),
            prefix: String::new(),
        }
    }

    /// For a backend served under a path of this server. `own` are the names of its host.
    pub fn below(prefix: &str, own: &[&str]) -> Self {
        Self {
            own: own.iter().filter(|h| !h.is_empty()).map(|h| (*h).to_owned()).collect(),
            base: None,
            prefix: prefix.to_owned(),
        }
    }

    /// The rewritten link; `None` if it leads elsewhere or is relative, and so stays as it is.
    pub fn rewritten(&self, link: &str) -> Option<String> {
        let parts = Parts::of(link)?;
        let elsewhere = parts.host.is_some_and(|h| !self.own.iter().any(|own| own == h));
        if elsewhere || !parts.path.starts_with('/') {
            return None;
        }
        let mut out = match &self.base {
            Some((scheme, host)) => format!("{scheme}://{host}"),
            None => String::new(),
        };
        if parts.path.starts_with(&self.prefix) {
            out.push_str(parts.path);
        } else {
            let below = format!(
                "{}{}",
                self.prefix.trim_end_matches('/'),
                url::canonical_path(parts.path)?
            );
            out.push_str(&url::cleaned_path(&below));
        }
        out.push_str(parts.rest);
        Some(out)
    }
}

impl<'a> Parts<'a> {
    /// `None` if the link cannot be parsed or has no hierarchy.
    fn of(link: &'a str) -> Option<Self> {
        if link.bytes().any(|b| b < b' ' || b == 0x7f) {
            return None;
        }
        let end = link.find(['?', '#']).unwrap_or(link.len());
        let (head, rest) = link.split_at(end);
        let after_scheme = match head.split_once(':') {
            Some((scheme, after)) if is_scheme(scheme) => match after.starts_with("//") {
                true => after,
                // An opaque URL such as `mailto:`.
                false => return None,
            },
            _ => head,
        };
        let (host, path) = match after_scheme.strip_prefix("//") {
            Some(rest) => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some(host), path)
            }
            None => (None, after_scheme),
        };
        url::canonical_path(path)?;
        Some(Self {
            host: host.filter(|h| !h.is_empty()),
            path,
            rest,
        })
    }
}

/// The error of Go's `url.Parse` for this link, if any.
pub(crate) fn go_parse_error(link: &str) -> Option<String> {
    let about = |why: String| Some(format!("parse {}: {why}", crate::apimachinery::field::quote(link)));
    let (head, fragment) = link.split_once('#').unwrap_or((link, ""));
    let head = head.split('?').next().unwrap_or("");
    let rest = match head.split_once(':') {
        Some(("", _)) => return about("missing protocol scheme".to_owned()),
        Some((scheme, rest)) if is_scheme(scheme) => rest,
        Some((first, _)) if !first.contains('/') => {
            return about("first path segment in URL cannot contain colon".to_owned());
        }
        _ => head,
    };
    let (host, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let host = host.rsplit('@').next().unwrap_or("");
    if let Some((_, port)) = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'))
        && !port.bytes().all(|b| b.is_ascii_digit())
    {
        return about(format!(
            "invalid port {} after host",
            crate::apimachinery::field::quote(&format!(":{port}"))
        ));
    }
    for part in [path, fragment] {
        if let Some(escape) = percent::malformed_escape(part) {
            return about(format!(
                "invalid URL escape {}",
                crate::apimachinery::field::quote(escape)
            ));
        }
    }
    None
}

fn is_scheme(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic())
        && s.bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_an_aggregated_backend_point_to_the_backend() {
        let links = Links::to_backend("10.0.0.1:443");
        let of = |l: &str| links.rewritten(l);
        assert_eq!(of("/a/%2Fb?c=d#e").unwrap(), "https://10.0.0.1:443/a/%2Fb?c=d#e");
        assert_eq!(of("http://10.0.0.1:443/x").unwrap(), "https://10.0.0.1:443/x");
        assert_eq!(of("//10.0.0.1:443/x").unwrap(), "https://10.0.0.1:443/x");
        for left in [
            "x/y",
            "",
            "?q",
            "#f",
            "http://elsewhere/x",
            "//elsewhere/x",
            "mailto:a@b",
            "/%zz",
        ] {
            assert_eq!(of(left), None, "{left}");
        }
    }

    #[test]
    fn invalid_links_are_reported_in_gos_wording() {
        for (link, why) in [
            ("/%zz", Some("parse \"/%zz\": invalid URL escape \"%zz\"")),
            (":x", Some("parse \":x\": missing protocol scheme")),
            (
                "1:x",
                Some("parse \"1:x\": first path segment in URL cannot contain colon"),
            ),
            (
                "http://h:x/",
                Some("parse \"http://h:x/\": invalid port \":x\" after host"),
            ),
            ("https://[::1]:443/a%20b?%zz#c", None),
            ("a/b:c", None),
            ("mailto:a@b", None),
        ] {
            assert_eq!(go_parse_error(link).as_deref(), why, "{link}");
        }
    }

    #[test]
    fn links_below_a_proxy_path_stay_below_it() {
        let prefix = "/api/v1/namespaces/n/pods/p/proxy";
        let links = Links::below(prefix, &["10.0.0.1:80", ""]);
        let of = |l: &str| links.rewritten(l);
        assert_eq!(of("/x?y=z").unwrap(), format!("{prefix}/x?y=z"));
        assert_eq!(of("/x/").unwrap(), format!("{prefix}/x/"));
        assert_eq!(of("http://10.0.0.1:80/x").unwrap(), format!("{prefix}/x"));
        assert_eq!(of(&format!("{prefix}/x")).unwrap(), format!("{prefix}/x"));
        assert_eq!(of("http://elsewhere/x"), None);
        assert_eq!(of("x"), None);
    }
}
