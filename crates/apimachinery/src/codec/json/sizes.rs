//! Counts the members of every container before decoding, so that vectors are allocated at their final size.
//!
//! A growing vector doubles and keeps the old half until it is copied, so a list of numbers would peak at
//! three times the memory of its tree. For small texts the extra pass does not pay off.

use super::MAX_DEPTH;
use super::projection::string_end;
use crate::interrupt::pause;

/// Texts up to this length are decoded without counting.
const SMALL: usize = 64 * 1024;
/// Length of the shortest list element with its comma: `0,`.
const ELEMENT: usize = 2;

/// The member counts of containers, in the order in which they open.
#[derive(Default)]
pub(super) struct Sizes(std::vec::IntoIter<u32>);

impl Sizes {
    /// Counts the containers of a text. On malformed JSON the counts are meaningless; [`next`](Self::next)
    /// bounds them by the length of the text.
    pub(super) fn of(text: &[u8]) -> Self {
        // The extra pass costs more than the copies that it saves.
        if text.len() <= SMALL {
            return Self::default();
        }
        let mut sizes: Vec<u32> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut just_opened = false;
        let mut at = 0;
        while let Some(&b) = text.get(at) {
            at += 1;
            match b {
                b'{' | b'[' => {
                    pause();
                    // A container that contains anything starts at one; each comma adds one.
                    if let (true, Some(&container)) = (just_opened, open.last()) {
                        sizes[container] = 1;
                    }
                    // The decoder refuses the text at this depth, so counting on would only grow `open`.
                    if open.len() > MAX_DEPTH {
                        break;
                    }
                    open.push(sizes.len());
                    sizes.push(0);
                    just_opened = true;
                    continue;
                }
                b'}' | b']' => drop(open.pop()),
                b',' => {
                    pause();
                    if let Some(&container) = open.last() {
                        sizes[container] += 1;
                    }
                }
                b' ' | b'\n' | b'\t' | b'\r' => continue,
                _ => {
                    if let (true, Some(&container)) = (just_opened, open.last()) {
                        sizes[container] = 1;
                    }
                    if b == b'"' {
                        match string_end(text, at) {
                            Ok(end) => at = end,
                            Err(_) => break,
                        }
                    }
                }
            }
            just_opened = false;
        }
        Self(sizes.into_iter())
    }

    /// The number of members of the container that opens `left` bytes before the end of the text; 0 if
    /// unknown.
    pub(super) fn next(&mut self, left: usize) -> usize {
        // Capped by what the remaining text can hold, because malformed text yields counts that no element backs.
        self.0.next().map_or(0, |n| (n as usize).min(left / ELEMENT + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json;
    use crate::value::Value;

    fn containers(v: &Value, out: &mut Vec<usize>) {
        match v {
            Value::Array(a) => {
                out.push(a.len());
                a.iter().for_each(|v| containers(v, out));
            }
            Value::Object(m) => {
                out.push(m.len());
                m.values().for_each(|v| containers(v, out));
            }
            _ => {}
        }
    }

    #[test]
    fn containers_are_counted_in_opening_order() {
        let text = format!(
            r#"{{"a" : [ ], "b": [[1, 2],[{{}},"]}},\"[",null ] , -1.5], "c": {{"x":{{"y" :"{}"}} }}}}"#,
            "z".repeat(SMALL)
        );
        let mut want = Vec::new();
        containers(&json::decode(text.as_bytes()).unwrap(), &mut want);
        assert_eq!(want, [3, 0, 3, 2, 3, 0, 1, 1]);
        let mut sizes = Sizes::of(text.as_bytes());
        let got: Vec<usize> = want.iter().map(|_| sizes.next(1 << 20)).collect();
        assert_eq!(got, want);
        assert_eq!(sizes.next(1 << 20), 0);
    }

    #[test]
    fn malformed_text_yields_bounded_counts() {
        let text = [b"[".as_slice(), &b",".repeat(SMALL), b"]]]}}}\"\\"].concat();
        assert_eq!(Sizes::of(&text).next(10), 6);
        assert_eq!(Sizes::of(&b"[".repeat(2 * SMALL)).0.len(), MAX_DEPTH + 1);
    }
}
