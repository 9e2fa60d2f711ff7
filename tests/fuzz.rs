//! Runs every fuzz body over its seeds and mutations of them: briefly in the ordinary test run, for
//! `FUZZ_SECONDS` per body with `make fuzz`. The random generator is seeded, so failures are reproducible.

#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::time::{Duration, Instant};

/// xorshift64*: small and identical on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn mutate(seed: &[u8], all: &[&[u8]], r: &mut Random) -> Vec<u8> {
    const SPICE: &[u8] = b"{}[]\":,\\/~.-+eE0019=!<>()&*%#?|'\n\t \x00\xff\xe2\x80";
    let mut out = seed.to_vec();
    for _ in 0..=r.below(6) {
        let at = r.below(out.len() + 1);
        match r.below(7) {
            0 if !out.is_empty() => drop(out.remove(at.min(out.len() - 1))),
            1 if !out.is_empty() => {
                let i = at.min(out.len() - 1);
                out[i] = out[i].wrapping_add(1 << r.below(8));
            }
            2 => out.truncate(at),
            3 => {
                let other = all[r.below(all.len())];
                let from = r.below(other.len() + 1);
                let part = other[from..].to_vec();
                out.splice(at..at, part);
            }
            4 if out.len() < 4096 => {
                let part = out[at..].to_vec();
                out.extend(part);
            }
            _ => out.insert(at, SPICE[r.below(SPICE.len())]),
        }
    }
    out
}

#[test]
fn no_parser_of_untrusted_bytes_panics_or_breaks_its_property() {
    let seconds: u64 = std::env::var("FUZZ_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    let only = std::env::var("FUZZ_ONLY").unwrap_or_default();
    for (name, body, seeds) in bodies::ALL {
        if !only.is_empty() && only != *name {
            continue;
        }
        let seeds: Vec<&[u8]> = seeds.iter().map(|s| s.as_bytes()).collect();
        let mut r = Random(0x9e37_79b9_7f4a_7c15 ^ name.len() as u64);
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut n = 0u64;
        while n < 3000 || Instant::now() < until {
            let mut input = seeds[r.below(seeds.len())].to_vec();
            if n >= seeds.len() as u64 {
                input = mutate(&input, &seeds, &mut r);
            } else {
                input = seeds[n as usize].to_vec();
            }
            let failed = std::panic::catch_unwind(|| body(&input)).is_err();
            assert!(!failed, "{name} fails on {:?}", String::from_utf8_lossy(&input));
            n += 1;
        }
        if seconds > 0 {
            println!("{name}: {n} inputs");
        }
    }
}
