//! Image reference parsing, as far as the default pull policy depends on it (upstream's `pkg/util/parsers`,
//! whose grammar is that of `github.com/distribution/reference`). Start at [`tag_is_latest`].

/// Whether the image has the tag `latest`, or neither tag nor digest. False for an invalid reference.
pub(super) fn tag_is_latest(image: &str) -> bool {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash starts the port of the host.
    let last = rest.rfind('/').map_or(0, |i| i + 1);
    let (name, tag) = match rest[last..].split_once(':') {
        Some((end, tag)) => (&rest[..last + end.len()], Some(tag)),
        None => (rest, None),
    };
    if !is_name(name) || !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
        return false;
    }
    tag.map_or(digest.is_none(), |t| t == "latest")
}

/// Whether this is a valid repository name with optional host. 64 hex digits are an image ID instead.
fn is_name(name: &str) -> bool {
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if is_host(host) => (host, path),
        _ => ("docker.io", name),
    };
    // Images without a user are in `library/`, which counts.
    let implied = match host {
        "docker.io" | "index.docker.io" if !path.contains('/') => "library/".len(),
        _ => 0,
    };
    let is_id = name.len() == 64 && name.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    implied + path.len() <= 255 && !is_id && path.split('/').all(is_component)
}

/// Whether the part before the first slash is a valid host: it must contain a dot, colon or upper-case
/// letter, or be `localhost`; otherwise it is a path component.
fn is_host(text: &str) -> bool {
    let looks = text.contains(['.', ':']) || text == "localhost" || text.bytes().any(|c| c.is_ascii_uppercase());
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "0"));
    let label = |l: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        !l.is_empty() && l.bytes().all(inner) && !l.starts_with('-') && !l.ends_with('-')
    };
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let fine = match bracketed {
        Some(v6) => v6.bytes().all(|c| c.is_ascii_hexdigit() || c == b':'),
        None => host.split('.').all(label),
    };
    looks && fine && !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit())
}

/// A path component: lower-case words separated by one dot, one or two underscores, or any number of dashes.
fn is_component(text: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let joint = |j: &str| matches!(j, "." | "_" | "__") || j.bytes().all(|c| c == b'-');
    text.starts_with(word) && text.ends_with(word) && text.split(word).all(joint)
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128 && text.starts_with(word) && text.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

fn is_digest(text: &str) -> bool {
    let part =
        |p: &str| p.starts_with(|c: char| c.is_ascii_alphabetic()) && p.bytes().all(|c| c.is_ascii_alphanumeric());
    text.split_once(':').is_some_and(|(kind, hex)| {
        kind.split(['-', '_', '+', '.']).all(part) && hex.len() >= 32 && hex.bytes().all(|c| c.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_is_explicit_or_implied_by_a_missing_tag() {
        let hex = "0123456789abcdef".repeat(4);
        for (image, latest) in [
            ("a", true),
            ("a:latest", true),
            ("a:1", false),
            ("host:5000/a", true),
            ("Host.Example/a/b-c__d", true),
            ("[::1]:5000/a", true),
            ("host:5000/a:1", false),
            (format!("a@sha256:{hex}").as_str(), false),
            (format!("a:latest@sha256:{hex}").as_str(), true),
            ("a".repeat(247).as_str(), true),
            ("a".repeat(248).as_str(), false),
            (format!("r.io/{}", "a".repeat(255)).as_str(), true),
            (format!("r.io/{}", "a".repeat(256)).as_str(), false),
        ] {
            assert_eq!(tag_is_latest(image), latest, "{image}");
        }
    }

    #[test]
    fn invalid_references_are_not_latest() {
        let long = "x".repeat(300);
        for image in [
            "",
            "Not_Valid",
            "a b",
            "-1",
            "a//b",
            "a:",
            "a:b c",
            "a@sha256:00",
            "x___y",
            long.as_str(),
        ] {
            assert!(!tag_is_latest(image), "{image}");
        }
    }
}
