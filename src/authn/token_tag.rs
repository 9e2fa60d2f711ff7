//! [`Tagger`]: tags that identify a token in a cache, so that no token is held in memory.

use super::PresentedToken;
use aws_lc_rs::hmac;

/// The system's random number generator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random numbers for the token cache")]
pub struct NoRandomNumbers;

/// Identifies a token together with the audiences it was presented for.
pub(super) type Tag = [u8; 32];

/// Separates the token from audiences in the tagged text. 0xff occurs in no UTF-8 text, so the encoding is
/// unambiguous.
const SEPARATOR: u8 = 0xff;

/// Derives tags with HMAC-SHA-256 under a random key.
///
/// HMAC is a pseudorandom function: an attacker who sees tags, in a core dump or through timing, learns neither the
/// key nor how to forge a token with the tag of another. A tag is therefore no secret, and comparing tags
/// need not take constant time. `docs/adr/0011-libraries-outside-the-core.md` has the alternatives and what
/// they cost.
pub(super) struct Tagger(hmac::Key);

impl Tagger {
    /// # Errors
    /// [`NoRandomNumbers`]
    pub(super) fn try_new() -> Result<Self, NoRandomNumbers> {
        let random = aws_lc_rs::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        Ok(Self(key.map_err(|_| NoRandomNumbers)?))
    }

    pub(super) fn tag(&self, presented: PresentedToken<'_>) -> Tag {
        let mut text = hmac::Context::with_key(&self.0);
        text.update(presented.token.as_bytes());
        for audience in presented.audiences {
            text.update(&[SEPARATOR]);
            text.update(audience.as_bytes());
        }
        text.sign().as_ref().try_into().expect("an HMAC-SHA-256 has 32 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_tag_identifies_one_token_with_its_audiences() {
        let tagger = Tagger::try_new().unwrap();
        let [a, b, ab] = ["a", "b", "ab"].map(str::to_owned);
        let long = "t".repeat(1000);
        let presented: [(&str, &[String]); 9] = [
            ("", &[]),
            ("t", &[]),
            ("ta", &[]),
            (&long, &[]),
            (&long[1..], &[]),
            ("t", std::slice::from_ref(&a)),
            ("t", std::slice::from_ref(&ab)),
            ("t", &[a.clone(), b.clone()]),
            ("t", &[b.clone(), a.clone()]),
        ];
        let presented = presented.map(|(token, audiences)| PresentedToken { token, audiences });
        let tags: HashSet<Tag> = presented.iter().map(|p| tagger.tag(*p)).collect();
        assert_eq!(tags.len(), presented.len());
        assert!(presented.iter().all(|p| tags.contains(&tagger.tag(*p))));
        let other = Tagger::try_new().unwrap();
        assert_ne!(
            tagger.tag(presented[1]),
            other.tag(presented[1]),
            "each cache has its own key"
        );
    }
}
