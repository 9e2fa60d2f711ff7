//! [`Semver`]: a semantic version, strictly as version 2 of their specification has it.

use std::cmp::Ordering;

/// A parsed version, without its build metadata, which comparisons ignore.
#[derive(Debug)]
pub struct Semver {
    /// Major, minor and patch.
    pub(crate) numbers: [u64; 3],
    pre: Vec<Identifier>,
}

/// An identifier of a pre-release. Numbers sort before words.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(Box<str>),
}

/// Why a text is not a version, in the words of the library that upstream uses (blang/semver).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("Version string empty")]
    Empty,
    #[error("No Major.Minor.Patch elements found")]
    TooFewNumbers,
    /// In the major, minor or patch number.
    #[error("Invalid character(s) found in {part} number {text:?}")]
    NumberCharacters { part: &'static str, text: String },
    #[error("{} number must not contain leading zeroes {text:?}", capitalized(part))]
    NumberZeroes { part: &'static str, text: String },
    /// A number is empty or exceeds 64 bits.
    #[error("strconv.ParseUint: parsing {text:?}: {why}")]
    Number { text: String, why: &'static str },
    #[error("Prerelease is empty")]
    EmptyPrerelease,
    #[error("Numeric PreRelease version must not contain leading zeroes {0:?}")]
    PrereleaseZeroes(String),
    #[error("Invalid character(s) found in prerelease {0:?}")]
    PrereleaseCharacters(String),
    #[error("Build meta data is empty")]
    EmptyBuild,
    #[error("Invalid character(s) found in build meta data {0:?}")]
    BuildCharacters(String),
    /// Only a version of three numbers may have more behind them.
    #[error("short version cannot contain PreRelease/Build meta data")]
    ShortWithSuffix,
}

fn is_identifier(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn number(s: &str, part: &'static str) -> Result<u64, ParseError> {
    let text = || s.to_owned();
    if !s.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseError::NumberCharacters { part, text: text() });
    }
    if s.len() > 1 && s.starts_with('0') {
        return Err(ParseError::NumberZeroes { part, text: text() });
    }
    // Only digits are left, so the text is empty or too large.
    let why = if s.is_empty() {
        "invalid syntax"
    } else {
        "value out of range"
    };
    s.parse().map_err(|_| ParseError::Number { text: text(), why })
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}

fn identifier(s: &str) -> Result<Identifier, ParseError> {
    if s.is_empty() {
        return Err(ParseError::EmptyPrerelease);
    }
    if s.bytes().all(|b| b.is_ascii_digit()) {
        if s.len() > 1 && s.starts_with('0') {
            return Err(ParseError::PrereleaseZeroes(s.to_owned()));
        }
        let out_of_range = |_| ParseError::Number {
            text: s.to_owned(),
            why: "value out of range",
        };
        return s.parse().map(Identifier::Number).map_err(out_of_range);
    }
    if is_identifier(s) {
        Ok(Identifier::Word(s.into()))
    } else {
        Err(ParseError::PrereleaseCharacters(s.to_owned()))
    }
}

impl Semver {
    /// Parses a version strictly.
    pub(crate) fn parse(s: &str) -> Result<Self, ParseError> {
        if s.is_empty() {
            return Err(ParseError::Empty);
        }
        // At most three parts: dots behind the second belong to pre-release and build.
        let mut parts = s.splitn(3, '.');
        let (Some(major), Some(minor), Some(patch)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ParseError::TooFewNumbers);
        };
        let (major, minor) = (number(major, "major")?, number(minor, "minor")?);
        // The build first: it may contain dashes, with which a pre-release starts.
        let (patch, build) = patch.split_once('+').map_or((patch, None), |(p, b)| (p, Some(b)));
        let (patch, pre) = patch.split_once('-').map_or((patch, None), |(p, r)| (p, Some(r)));
        let numbers = [major, minor, number(patch, "patch")?];
        let pre = pre.map_or(Ok(Vec::new()), |p| p.split('.').map(identifier).collect())?;
        for part in build.into_iter().flat_map(|b| b.split('.')) {
            if part.is_empty() {
                return Err(ParseError::EmptyBuild);
            }
            if !is_identifier(part) {
                return Err(ParseError::BuildCharacters(part.to_owned()));
            }
        }
        // Build metadata is validated and dropped.
        Ok(Self { numbers, pre })
    }

    /// Parses common variants: with a leading `v`, without minor and patch, with leading zeros.
    pub(crate) fn parse_normalized(s: &str) -> Result<Self, ParseError> {
        let s = s.strip_prefix('v').unwrap_or(s);
        let mut parts: Vec<String> = s.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 {
            let last = parts.last().map_or("", String::as_str);
            if last.contains(['+', '-']) {
                return Err(ParseError::ShortWithSuffix);
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        // A release is newer than its pre-releases.
        let release = self.pre.is_empty().cmp(&other.pre.is_empty());
        self.numbers
            .cmp(&other.numbers)
            .then(release)
            .then_with(|| self.pre.cmp(&other.pre))
    }
}

/// The part without leading zeros; one is kept before anything but a digit.
fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}
