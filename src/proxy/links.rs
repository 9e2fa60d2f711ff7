//! Rewrites links of a backend to itself, in `Location` and in HTML, for clients behind the proxy. Follows
//! `apimachinery/pkg/util/proxy/transport.go`. Entry point: [`Links::rewritten`].

use super::url;
use crate::request::go_url::is_scheme;

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
    /// For a backend of an APIService. Links point to the backend's own address, whether or not the client
    /// can reach it, as upstream's do.
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
        // A relative link is right as it is: the browser resolves it against the page's own URL.
        if elsewhere || !parts.path.starts_with('/') {
            return None;
        }
        let mut out = match &self.base {
            Some((scheme, host)) => format!("{scheme}://{host}"),
            None => String::new(),
        };
        // A plain string prefix, without regard to path segments: as upstream's `strings.HasPrefix`.
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
        // Go's `url.Parse` rejects control characters.
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
        // Checked even if the path is used as it is: Go would not have parsed the link.
        url::canonical_path(path)?;
        Some(Self {
            host: host.filter(|h| !h.is_empty()),
            path,
            rest,
        })
    }
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
