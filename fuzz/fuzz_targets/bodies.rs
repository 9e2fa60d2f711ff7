//! One libFuzzer target for all bodies: the first byte of the input selects the body.
#![no_main]

#[path = "../bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((pick, rest)) = data.split_first() {
        let (_, body, _) = bodies::ALL[usize::from(*pick) % bodies::ALL.len()];
        body(rest);
    }
});
