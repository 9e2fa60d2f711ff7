//! [`Url`]: a URL as Go reads a request URI, which is an absolute URI or an absolute path.

use torana_apimachinery::field::quote;

/// A parsed URL. Its parts are as `url()` and its functions return them.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

/// Why a text is not a request URI, in the words of Go's `net/url`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("parse {}: {why}", quote(text))]
pub(crate) struct ParseError {
    text: String,
    why: Reason,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Reason {
    #[error("net/url: invalid control character in URL")]
    ControlCharacter,
    #[error("empty url")]
    Empty,
    #[error("missing protocol scheme")]
    NoScheme,
    /// Neither an absolute URI nor an absolute path.
    #[error("invalid URI for request")]
    Relative,
    #[error("invalid URL escape {}", quote(.0))]
    Escape(String),
    #[error("invalid character {} in host name", quote(&.0.to_string()))]
    HostCharacter(char),
    #[error("invalid port {} after host", quote(&format!(":{}", .0)))]
    Port(String),
    #[error("missing ']' in host")]
    OpenBracket,
}

impl Url {
    /// Parses a request URI.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        Self::parts(text).map_err(|why| ParseError {
            text: text.to_owned(),
            why,
        })
    }

    fn parts(text: &str) -> Result<Self, Reason> {
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err(Reason::ControlCharacter);
        }
        if text.is_empty() {
            return Err(Reason::Empty);
        }
        let (scheme, rest) = match text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)) {
            Some(0) if text.starts_with(':') => return Err(Reason::NoScheme),
            Some(i) if text[i..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                (&text[..i], &text[i + 1..])
            }
            _ => ("", text),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') {
            return if scheme.is_empty() {
                Err(Reason::Relative)
            } else {
                // Opaque: `mailto:someone`.
                Ok(Self {
                    scheme: scheme.into(),
                    host: String::new(),
                    path: String::new(),
                    query: query.into(),
                })
            };
        }
        let (host, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
            Some(after) => after.split_at(after.find('/').unwrap_or(after.len())),
            None => ("", rest),
        };
        // User information may contain further `@`, so the last one counts.
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if let Some(bad) = bad_escape(path) {
            return Err(Reason::Escape(bad.to_owned()));
        }
        if let Some(c) = host.chars().find(|c| " \"<>^`{|}\\".contains(*c)) {
            return Err(Reason::HostCharacter(c));
        }
        // Colons inside of brackets belong to an IPv6 address.
        let port = host.rsplit_once(']').map_or(host, |(_, after)| after);
        if let Some((_, port)) = port.split_once(':')
            && !port.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(Reason::Port(port.to_owned()));
        }
        if host.starts_with('[') && !host.contains(']') {
            return Err(Reason::OpenBracket);
        }
        Ok(Self {
            scheme: scheme.into(),
            host: host.into(),
            path: path.into(),
            query: query.into(),
        })
    }

    pub(crate) fn port(&self) -> &str {
        let after = self.host.rsplit_once(']').map_or(&*self.host, |(_, after)| after);
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }

    pub(crate) fn hostname(&self) -> &str {
        let host = match self.host.rsplit_once(':') {
            // A colon inside of brackets is not the port's.
            Some((host, port)) if !port.contains(']') => host,
            _ => &self.host,
        };
        host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
    }
}

/// The first `%` without two hexadecimal digits after it.
pub(crate) fn bad_escape(text: &str) -> Option<&str> {
    let bad = |(i, _): &(usize, &str)| {
        let digits = text.as_bytes().get(i + 1..i + 3);
        !digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
    };
    let (i, _) = text.match_indices('%').find(bad)?;
    // Go shows the percent sign with up to two characters.
    let end = text[i..].char_indices().nth(3).map_or(text.len(), |(n, _)| i + n);
    Some(&text[i..end])
}
