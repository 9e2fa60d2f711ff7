//! Streaming rewriter for the links in HTML pages. It parses only start tags and rewrites only links in
//! attributes; it buffers no more than one incomplete tag.
//!
//! Tags are serialised as Go's `html.Token.String` does: names in lower case, values in double quotes.
//! Entities in values that are not rewritten are left alone.
//!
//! Entry points: [`Rewritten`] for a response body, [`Page`] for plain bytes. Which links change is decided
//! in [`super::links`].

mod body;
mod entities;

pub(crate) use body::{Encoding, Rewritten};

use super::links::Links;
use entities::{escape, unescaped};

/// Longest tag that is parsed; a longer one is passed on unchanged up to its end. A tag is parsed at once, so this
/// bounds the time of it as well as the buffer.
const MAX_TAG: usize = 16 << 10;

/// Attributes that hold a link, by tag: `atomsToAttrs` in upstream's `transport.go`.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Tags whose content is raw text up to their end tag.
const RAW: [&str; 9] = [
    "iframe",
    "noembed",
    "noframes",
    "script",
    "style",
    "textarea",
    "title",
    "xmp",
    "plaintext",
];

/// The rewriter's state within one page.
pub struct Page {
    links: Links,
    /// Input that cannot be parsed yet.
    rest: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    /// In a start tag that is buffered until its end has been seen.
    Tag(Seen),
    /// In a start tag longer than [`MAX_TAG`], which is not buffered, and the raw text that it begins.
    LongTag(At, Option<&'static str>),
    /// In the content of one of the [`RAW`] tags.
    Raw(&'static str),
    /// In a comment or declaration, until these bytes.
    Comment(&'static [u8]),
}

/// How far a buffered start tag has been searched for its end. Kept, so that no byte is looked at twice, in however
/// many pieces the tag comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    bytes: usize,
    at: At,
}

/// A place in a start tag, behind its `<`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Between,
    Name,
    Equals,
    Bare,
    Quoted(u8),
}

struct Attribute<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

impl Page {
    /// At the start of a page.
    pub fn new(links: Links) -> Self {
        Self {
            links,
            rest: Vec::new(),
            state: State::Text,
        }
    }

    /// Feeds more input and appends what can be output to `out`.
    pub fn push(&mut self, more: &[u8], out: &mut Vec<u8>) {
        self.rest.extend_from_slice(more);
        // Taken out, because `scan` borrows all of `self`.
        let rest = std::mem::take(&mut self.rest);
        let used = self.scan(&rest, out);
        self.rest = rest;
        self.rest.drain(..used);
    }

    /// Ends the page: outputs what is still buffered, unchanged.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        // A tag that never ended passes as it is.
        out.append(&mut self.rest);
    }

    /// Processes as much of `page` as possible and returns the number of bytes consumed.
    fn scan(&mut self, page: &[u8], out: &mut Vec<u8>) -> usize {
        let mut at = 0;
        while at < page.len() {
            let here = &page[at..];
            let used = match self.state {
                State::Text => self.text(here, out),
                State::Tag(seen) => self.start_tag(seen, here, out),
                State::LongTag(at, raw) => self.long_tag(at, raw, here, out),
                State::Raw(tag) => self.raw(tag, here, out),
                State::Comment(end) => self.comment(end, here, out),
            };
            // Nothing more can be decided without further input.
            if used == 0 {
                break;
            }
            at += used;
        }
        at
    }

    fn text(&mut self, here: &[u8], out: &mut Vec<u8>) -> usize {
        let tag = here.iter().position(|b| *b == b'<').unwrap_or(here.len());
        if tag > 0 {
            out.extend_from_slice(&here[..tag]);
            return tag;
        }
        let opening = |state: &mut State, end: &'static [u8], out: &mut Vec<u8>| {
            *state = State::Comment(end);
            out.push(b'<');
            1
        };
        match here.get(1) {
            None => 0,
            Some(b) if b.is_ascii_alphabetic() => {
                let (bytes, at) = (1, At::Name);
                self.start_tag(Seen { bytes, at }, here, out)
            }
            // Shorter prefixes of `<!--` cannot be told from a declaration yet.
            Some(b'!') if here.len() < 4 => 0,
            Some(b'!') if here.starts_with(b"<!--") => {
                self.state = State::Comment(b"-->");
                // Leaves `-->` matchable within `<!-->`, which is a complete comment.
                out.extend_from_slice(b"<!");
                2
            }
            Some(b'!' | b'?') => opening(&mut self.state, b">", out),
            Some(_) => {
                out.push(b'<');
                1
            }
        }
    }

    /// `here` begins with a start tag.
    fn start_tag(&mut self, seen: Seen, here: &[u8], out: &mut Vec<u8>) -> usize {
        // The bound counts the same however the page is cut into pieces.
        let tag = &here[..here.len().min(MAX_TAG)];
        match tag_end(&tag[seen.bytes..], seen.at) {
            Ok(length) => {
                let length = seen.bytes + length;
                self.state = State::Text;
                self.tag(&tag[..length], out);
                length
            }
            Err(at) if tag.len() < MAX_TAG => {
                let bytes = tag.len();
                self.state = State::Tag(Seen { bytes, at });
                0
            }
            Err(at) => {
                // All of the tag passes, not just its `<` as text: the tags that seem to begin in it would be searched
                // for their ends in turn, which is quadratic.
                self.state = State::LongTag(at, raw_text(split_name(&tag[1..]).0));
                out.extend_from_slice(tag);
                tag.len()
            }
        }
    }

    /// `here` is the rest of a start tag that is not parsed.
    fn long_tag(&mut self, at: At, raw: Option<&'static str>, here: &[u8], out: &mut Vec<u8>) -> usize {
        let used = match tag_end(here, at) {
            Ok(length) => {
                self.state = raw.map_or(State::Text, State::Raw);
                length
            }
            Err(at) => {
                self.state = State::LongTag(at, raw);
                here.len()
            }
        };
        out.extend_from_slice(&here[..used]);
        used
    }

    fn comment(&mut self, end: &'static [u8], here: &[u8], out: &mut Vec<u8>) -> usize {
        let used = match here.windows(end.len()).position(|w| w == end) {
            Some(found) => {
                self.state = State::Text;
                found + end.len()
            }
            // The last bytes may begin the end mark, so they stay in the buffer.
            None => here.len().saturating_sub(end.len() - 1),
        };
        out.extend_from_slice(&here[..used]);
        used
    }

    fn raw(&mut self, tag: &'static str, here: &[u8], out: &mut Vec<u8>) -> usize {
        let end = tag.len() + 3;
        let is_end = |w: &[u8]| {
            w.starts_with(b"</")
                && w[2..end - 1].eq_ignore_ascii_case(tag.as_bytes())
                && matches!(w[end - 1], b' ' | b'\n' | b'\r' | b'\t' | 0x0c | b'/' | b'>')
        };
        let used = match here.windows(end).position(is_end) {
            // Nothing ends `plaintext`, not even its own end tag.
            Some(found) if tag != "plaintext" => {
                self.state = State::Text;
                // The end tag itself is then handled as text.
                found + 2
            }
            // As for comments: the last bytes may begin the end tag.
            _ => here.len().saturating_sub(end - 1),
        };
        out.extend_from_slice(&here[..used]);
        used
    }

    fn tag(&mut self, tag: &[u8], out: &mut Vec<u8>) {
        let (name, mut rest) = split_name(&tag[1..tag.len() - 1]);
        let name = name.to_ascii_lowercase();
        let known = |all: &str| all.as_bytes() == name.as_slice();
        // A self-closing slash does not prevent this in HTML.
        if let Some(raw) = raw_text(&name) {
            self.state = State::Raw(raw);
        }
        let links = LINKS.iter().find(|(tag, _)| known(tag)).map_or(&[][..], |(_, a)| *a);
        let closes = tag[tag.len() - 2] == b'/';
        // By place in `links`, of which there are four at most.
        let mut found = [false; 4];
        out.push(b'<');
        out.extend_from_slice(&name);
        while let Some(a) = attribute(&mut rest) {
            out.push(b' ');
            out.extend(a.name.iter().map(u8::to_ascii_lowercase));
            out.extend_from_slice(b"=\"");
            let link = links.iter().position(|l| a.name.eq_ignore_ascii_case(l.as_bytes()));
            // A browser uses the first of several attributes with one name. The others stay as they are: a tag can
            // have thousands of them.
            let is_link = link.is_some_and(|at| !std::mem::replace(&mut found[at], true));
            // A link that is not UTF-8 is left alone, as one that cannot be parsed.
            let value = is_link.then(|| std::str::from_utf8(a.value).ok()).flatten();
            let new = value.and_then(|v| self.links.rewritten(&unescaped(v)));
            match new {
                Some(new) => escape(new.as_bytes(), false, out),
                None => escape(a.value, true, out),
            }
            out.push(b'"');
        }
        out.extend_from_slice(if closes { b"/>" } else { b">" });
    }
}

/// The one of the [`RAW`] tags with this name.
fn raw_text(name: &[u8]) -> Option<&'static str> {
    RAW.into_iter().find(|raw| name.eq_ignore_ascii_case(raw.as_bytes()))
}

/// Length of the rest of a start tag, from this place in it; or else the place at the end of `rest`.
fn tag_end(rest: &[u8], mut at: At) -> Result<usize, At> {
    for (i, b) in rest.iter().enumerate() {
        at = match (at, *b) {
            (At::Quoted(q), b) if b == q => At::Between,
            (At::Quoted(q), _) => At::Quoted(q),
            (_, b'>') => return Ok(i + 1),
            (At::Equals, q @ (b'"' | b'\'')) => At::Quoted(q),
            (At::Equals, b) if is_space(b) => At::Equals,
            (At::Equals, _) => At::Bare,
            (At::Bare, b) if !is_space(b) => At::Bare,
            // An attribute name cannot begin with `=`, but `=` may follow a name after spaces.
            (At::Name | At::Between, b'=') => At::Equals,
            (At::Name, b) if !is_space(b) && b != b'/' => At::Name,
            (_, b) if is_space(b) || b == b'/' => At::Between,
            (_, _) => At::Name,
        };
    }
    Err(at)
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\n' | b'\r' | b'\t' | 0x0c)
}

fn split_name(tag: &[u8]) -> (&[u8], &[u8]) {
    tag.split_at(tag.iter().position(|b| is_space(*b) || *b == b'/').unwrap_or(tag.len()))
}

fn attribute<'a>(rest: &mut &'a [u8]) -> Option<Attribute<'a>> {
    let skip = |s: &'a [u8], also: u8| {
        let n = s.iter().position(|b| !is_space(*b) && *b != also).unwrap_or(s.len());
        &s[n..]
    };
    let s = skip(rest, b'/');
    if s.is_empty() {
        return None;
    }
    let end = |b: &u8| is_space(*b) || matches!(*b, b'/' | b'=');
    // A leading `=` is part of the name.
    let length = s[1..].iter().position(end).map_or(s.len(), |n| n + 1);
    let (name, s) = s.split_at(length);
    let after = skip(s, b' ');
    let Some((b'=', value)) = after.split_first() else {
        *rest = s;
        return Some(Attribute { name, value: b"" });
    };
    let value = skip(value, b' ');
    let (value, left) = match value.split_first() {
        Some((q @ (b'"' | b'\''), quoted)) => {
            let end = quoted.iter().position(|b| b == q).unwrap_or(quoted.len());
            (&quoted[..end], &quoted[(end + 1).min(quoted.len())..])
        }
        _ => value.split_at(value.iter().position(|b| is_space(*b)).unwrap_or(value.len())),
    };
    *rest = left;
    Some(Attribute { name, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rewritten(chunks: &[&[u8]]) -> String {
        let mut page = Page::new(Links::below("/proxy", &["own:1"]));
        let mut out = Vec::new();
        for c in chunks {
            page.push(c, &mut out);
        }
        page.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_links_in_attributes_change() {
        for (page, want) in [
            ("<a href=\"/x\">/x</a>", "<a href=\"/proxy/x\">/x</a>"),
            ("<A HREF='/x' Id=b>", "<a href=\"/proxy/x\" id=\"b\">"),
            ("<img src=/i.png alt>", "<img src=\"/proxy/i.png\" alt=\"\">"),
            ("<link href = \"/s.css\" />", "<link href=\"/proxy/s.css\"/>"),
            ("<a href=\"/x?a=1&amp;b=2\">", "<a href=\"/proxy/x?a=1&amp;b=2\">"),
            ("<a href=\"http://own:1/x\">", "<a href=\"/proxy/x\">"),
            ("<a href=\"http://other/x\">", "<a href=\"http://other/x\">"),
            ("<p title=\"a &nbsp; b & c\">", "<p title=\"a &nbsp; b &amp; c\">"),
            (
                "<!-- <a href=\"/x\"> --><q cite=/y>",
                "<!-- <a href=\"/x\"> --><q cite=\"/proxy/y\">",
            ),
            (
                "<!DOCTYPE html><a data=\">\" href=/x>",
                "<!DOCTYPE html><a data=\"&gt;\" href=\"/proxy/x\">",
            ),
            (
                "<script src=/s.js>'<a href=\"/x\">'</script><a href=/x>",
                "<script src=\"/proxy/s.js\">'<a href=\"/x\">'</script><a href=\"/proxy/x\">",
            ),
            (
                "<a href=/x HREF=/y data=/z><a href=/x>",
                "<a href=\"/proxy/x\" href=\"/y\" data=\"/z\"><a href=\"/proxy/x\">",
            ),
            ("1 < 2 <> <a", "1 < 2 <> <a"),
            ("<!--><a href=/x>", "<!--><a href=\"/proxy/x\">"),
        ] {
            assert_eq!(rewritten(&[page.as_bytes()]), want, "{page}");
        }
    }

    #[test]
    fn an_endless_tag_is_passed_on_unchanged() {
        let endless = format!("<a href=\"/x{}", "y".repeat(2 * MAX_TAG));
        assert_eq!(rewritten(&[endless.as_bytes()]), endless);
    }

    #[test]
    fn a_page_of_unclosed_tags_takes_linear_time() {
        let page = "<a".repeat(1 << 19);
        assert_eq!(rewritten(&[page.as_bytes()]), page);
        let pieces: Vec<&[u8]> = page.as_bytes().chunks(3).collect();
        assert_eq!(rewritten(&pieces), page);
    }

    #[test]
    fn a_tag_that_is_too_long_is_not_parsed_up_to_its_end() {
        let long = format!("<script data-x=\"<a href=/x>{}\" src=/x>", "y".repeat(MAX_TAG));
        let page = format!("{long}'<a href=/x>'</script><a href=/x>");
        let want = format!("{long}'<a href=/x>'</script><a href=\"/proxy/x\">");
        assert_eq!(rewritten(&[page.as_bytes()]), want);
        let pieces: Vec<&[u8]> = page.as_bytes().chunks(1000).collect();
        assert_eq!(rewritten(&pieces), want);
    }

    proptest! {
        #[test]
        fn chunk_boundaries_do_not_affect_the_output(page in "[<>/a-c!\\-\"'= x]{0,60}", at in 0_usize..60) {
            let page = format!("{page}<a href='/x'>");
            let at = at.min(page.len());
            let (one, two) = page.as_bytes().split_at(at);
            prop_assert_eq!(rewritten(&[one, two]), rewritten(&[page.as_bytes()]));
        }
    }
}
