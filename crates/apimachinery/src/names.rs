//! Generated object names (`generateName`) and UIDs.

/// Upstream's alphabet: no vowels, so that no words appear, and no characters that look alike
/// (`k8s.io/apimachinery/pkg/util/rand`).
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const BASE_MAX: usize = 63 - SUFFIX;

/// Returns a name for `generateName`: the base truncated to 58 bytes, followed by five random characters.
pub fn generate(base: &str) -> String {
    generate_from(base, u128::from_le_bytes(*uuid::Uuid::new_v4().as_bytes()))
}

fn generate_from(base: &str, seed: u128) -> String {
    // Upstream cuts at a byte; cutting inside a character would not be valid UTF-8, and such a base fails validation
    // in any case.
    let cut = (0..=base.len().min(BASE_MAX))
        .rev()
        .find(|&i| base.is_char_boundary(i))
        .unwrap_or(0);
    let mut name = base[..cut].to_owned();
    // A v4 UUID has fixed bits in bytes 6 and 8; its lowest 48 bits are all random.
    let mut bits = (seed as u64) & 0xffff_ffff_ffff;
    for _ in 0..SUFFIX {
        // 27^5 is far below 2^48, so the modulo bias is negligible.
        name.push(char::from(ALPHABET[(bits % 27) as usize]));
        bits /= 27;
    }
    name
}

/// Returns a random (v4) UID.
pub fn uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_base_is_truncated_to_a_63_byte_name() {
        let n = generate(&"a".repeat(80));
        assert_eq!(n.len(), 63);
        assert!(n[58..].bytes().all(|c| ALPHABET.contains(&c)));
        assert_eq!(generate_from("x-", 0), "x-bbbbb");
        assert!(generate(&"ü".repeat(80)).len() <= 63);
        assert_ne!(generate("a"), generate("a"));
    }
}
