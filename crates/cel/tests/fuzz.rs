//! Runs the fuzz body of expressions over its seeds and mutations of them: without the gateway, which takes
//! longer to build. The gateway's `tests/fuzz.rs` runs it with all others.

#[path = "../../../fuzz/bodies/expressions.rs"]
mod expressions;

const SEEDS: &[&str] = &[
    "self.tags.all(t, t.startsWith('a') || self.labels[t] == 'x')",
    "self.tags.map(t, {t: [t]}).filter(m, m.size() > 0).size() == any.x[0].z",
    "any.?x[?0].orValue({}).y == null ? self.name.matches('^[a-z]+$') : has(any.y)",
    "self.labels.transformMap(k, v, k + v).exists(k, v, v.contains('k'))",
    "Object{spec: Object.spec{replicas: self.n + 1, ?x: optional.of(1u)}}",
    "'%s %d %.3f'.format([self.name, dyn(self.n), dyn(1e3)]).replace('a', 'bb').split('b').join(',')",
    "quantity('1Gi').add(3).isGreaterThan(quantity('1M')) && ip('::1').isLoopback() && semver('1.2.3').major() == 1",
    "[3, 1, 2].sort().slice(1, 2).flatten() == [2] || lists.range(9).sum() in [36]",
    "duration('1h') + duration('2m') > duration('1s') && timestamp('2024-01-01T00:00:00Z').getHours('+01:00') == 1",
    "b'\\xff\\377' == bytes('\\u00e9') || r'\\n' != \"\"\"x\n\"\"\" || -1 % 2 == 0x1F",
];

#[test]
fn no_expression_panics_or_exceeds_its_limit() {
    const SPICE: &str = "()[]{}.,?:!+-*/%<>=&|'\"0123456789 selfanyxtin\\";
    let spice: Vec<char> = SPICE.chars().collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |n: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n.max(1)
    };
    let seconds: u64 = std::env::var("FUZZ_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let mut n = 0u64;
    while n < 4000 || std::time::Instant::now() < until {
        n += 1;
        let mut text: Vec<char> = SEEDS[below(SEEDS.len())].chars().collect();
        for _ in 0..below(5) {
            let at = below(text.len() + 1);
            match below(5) {
                0 => text.truncate(at.max(1)),
                1 => {
                    let other: Vec<char> = SEEDS[below(SEEDS.len())].chars().collect();
                    let from = below(other.len());
                    text.splice(at..at, other[from..].iter().copied());
                }
                2 if at < text.len() => drop(text.remove(at)),
                3 => {
                    // The same operand again and again: deep, or long.
                    let part: Vec<char> = text[at..].iter().copied().take(40).collect();
                    for _ in 0..below(300) {
                        text.splice(at..at, part.iter().copied());
                    }
                }
                _ => text.insert(at, spice[below(spice.len())]),
            }
        }
        let text: String = text.into_iter().collect();
        let failed = std::panic::catch_unwind(|| expressions::expression(text.as_bytes())).is_err();
        assert!(!failed, "it fails on {text:?}");
    }
}
