use super::*;
use crate::interrupt::{self, Interrupted, Limit};
use proptest::prelude::*;
use std::rc::Rc;

/// Fails if a pattern that was accepted does not compile.
fn compiled(pattern: &str) -> regex::Regex {
    translate(pattern).unwrap().compile(64 << 20).unwrap()
}

fn matches(pattern: &str, text: &str) -> bool {
    compiled(pattern).is_match(text)
}

fn error(pattern: &str) -> String {
    let text = translate(pattern).unwrap_err().to_string();
    text.strip_prefix("error parsing regexp: ").unwrap().to_owned()
}

#[test]
fn perl_classes_are_ascii_only_as_in_go() {
    assert!(matches(r"^\d+$", "12") && !matches(r"^\d+$", "٣"));
    assert!(matches(r"^[\w-]+$", "a_b-C") && !matches(r"^\w+$", "é"));
    assert!(matches(r"^[^\d]$", "é") && matches(r"^[\D]$", "é") && matches(r"^[\Wa]+$", "é-a"));
    assert!(matches(r"^.{2}$", "éa") && matches(r"\bfoo\b", "a foo b") && !matches(r"\s", "\u{b}"));
}

#[test]
fn literals_of_go_syntax_stay_literals() {
    assert!(matches("^[[]$", "[") && matches("^a{x}$", "a{x}") && matches("^[a&&b]$", "&"));
    assert!(matches("^[]a]$", "]") && matches("^[[:alpha:]]+$", "ab") && matches(r"^\Qa.b\E$", "a.b"));
    assert!(!matches(r"^\Qa.b\E$", "axb") && matches(r"^a{2,3}$", "aaa") && matches("^a{,2}$", "a{,2}"));
    assert!(matches(r"^\x41\x{e9}\101\0$", "AéA\0") && matches(r"^[a\-z]$", "-") && matches("^[a-]$", "-"));
    assert!(matches("a{01}", "a{01}") && matches(r"^[\t-\r ]$", "\n"));
    assert_eq!(error("^[~~--]$"), "invalid character class range: `~--`");
}

#[test]
fn groups_and_flags_are_translated() {
    assert!(matches("^(?P<a>x)(?<b>y)(?:z)$", "xyz") && matches("(?i)^ab$", "AB") && matches("^(?i:a)b$", "Ab"));
    assert!(!matches("^(?i:a)b$", "AB") && matches("(?s)^.$", "\n") && !matches("^.$", "\n"));
    assert!(matches("(?m)^b$", "a\nb") && !matches("^b$", "a\nb") && matches("(?i-i)a", "a"));
    assert!(matches("^a(?i)*B$", "aab") && matches("^a*(?i)*$", "aa"));
    // Each operator goes before all flags behind its item.
    assert_eq!(translate("a(?i)*(?s)+b(?m)?c").unwrap().text, "a*+(?i)(?s)b?(?m)c");
    // A question mark behind another operator does not make that one lazy if flags are between them.
    assert!(matches("^a+(?i)?$", "") && matches("^a{2}(?)?$", "") && matches("^a+(?i)?(?s)?$", ""));
    assert!(!matches("^a+?$", "") && matches("^(?:a+)?$", ""));
    assert!(!matches("(?i-i)a", "A") && matches("(?ii)a", "A") && matches("()a||b", "b") && matches("(?)a", "a"));
}

#[test]
fn unicode_classes_have_gos_names() {
    assert!(matches(r"^\pL\p{Greek}\p{^L}\P{Lu}$", "éα1a") && matches(r"^[\p{Lu}\d]+$", "É1"));
    assert!(matches(r"^[^\x{D800}-\x{DFFF}]$", "é") && !matches(r"[\x{D800}]", "é"));
    assert_eq!(error(r"\p{Nope}"), r"invalid character class range: `\p{Nope}`");
    assert_eq!(error(r"\p"), r"invalid character class range: `\p`");
}

#[test]
fn errors_have_gos_texts() {
    for (pattern, text) in [
        ("(", "missing closing ): `(`"),
        ("a)b", "unexpected ): `a)b`"),
        ("[a", "missing closing ]: `[a`"),
        ("x[b-a]", "invalid character class range: `b-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("(|*)", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("(a{100}){100}", "invalid repeat count: `{100}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=a)", "invalid named capture: `(?<=a)`"),
        ("(?P<a b>x)", "invalid named capture: `(?P<a b>`"),
        ("(?P<a", "invalid named capture: `(?P<a`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\q", r"invalid escape sequence: `\q`"),
        (r"[\b]", r"invalid escape sequence: `\b`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"\x4", r"invalid escape sequence: `\x4`"),
        ("a\\", "trailing backslash at end of expression: ``"),
    ] {
        assert_eq!(error(pattern), text, "{pattern}");
    }
    assert_eq!(
        error(r"(\pL{1000}){1,1}|a{1000}").split(':').next(),
        Some("expression too large")
    );
    assert!(error(&"(".repeat(2000)).starts_with("expression nests too deeply"));
    // The pattern is not read beyond 500 classes.
    let many = r"\p{Greek}".repeat(1_000) + ")";
    assert!(error(&many).starts_with("expression too large"));
}

struct Over;

impl Limit for Over {
    fn is_exceeded(&self) -> bool {
        true
    }
}

#[test]
fn long_patterns_can_be_interrupted() {
    let work = || translate(&"a(?i)*".repeat(1_000)).is_ok();
    assert_eq!(interrupt::run(Rc::new(Over), work), Err(Interrupted));
    assert!(work());
}

proptest! {
    #[test]
    fn accepted_patterns_compile(pattern in r"([a-z0-9(){}\[\]|*+?.^$\\,:<>P=!&~dDwWsSbBpQEAzx-]|é|\\p\{L\}|\[\[:alpha:\]){0,24}", text in ".{0,20}") {
        if translate(&pattern).is_ok() {
            compiled(&pattern).is_match(&text);
        }
    }
}
