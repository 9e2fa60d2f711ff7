//! The parser's input. It passes checkpoints, because the parser may read megabytes before it emits an event:
//! a scalar, or a flow collection (`[…]`) that could turn out to be a key.

use crate::interrupt::checkpoint;
use saphyr_parser::{Input, StrInput};

/// A [`StrInput`] with a [`checkpoint`] each time the parser looks ahead, which it does at least once per
/// token.
pub(super) struct PausingInput<'a>(StrInput<'a>);

impl<'a> PausingInput<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self(StrInput::new(text))
    }
}

// The methods that `StrInput` implements faster than the trait does, as far as they are called per character,
// are forwarded as well.
impl Input for PausingInput<'_> {
    #[inline]
    fn lookahead(&mut self, count: usize) {
        // The one place that every token passes.
        checkpoint();
        self.0.lookahead(count);
    }

    #[inline]
    fn buflen(&self) -> usize {
        self.0.buflen()
    }

    #[inline]
    fn bufmaxlen(&self) -> usize {
        self.0.bufmaxlen()
    }

    #[inline]
    fn raw_read_ch(&mut self) -> char {
        self.0.raw_read_ch()
    }

    #[inline]
    fn raw_read_non_breakz_ch(&mut self) -> Option<char> {
        self.0.raw_read_non_breakz_ch()
    }

    #[inline]
    fn skip(&mut self) {
        self.0.skip();
    }

    #[inline]
    fn skip_n(&mut self, count: usize) {
        self.0.skip_n(count);
    }

    #[inline]
    fn peek(&self) -> char {
        self.0.peek()
    }

    #[inline]
    fn peek_nth(&self, n: usize) -> char {
        self.0.peek_nth(n)
    }

    #[inline]
    fn peek_opt(&self) -> Option<char> {
        self.0.peek_opt()
    }

    fn skip_while_non_breakz(&mut self) -> usize {
        self.0.skip_while_non_breakz()
    }

    fn skip_while_blank(&mut self) -> usize {
        self.0.skip_while_blank()
    }

    fn fetch_while_is_alpha(&mut self, out: &mut String) -> usize {
        self.0.fetch_while_is_alpha(out)
    }

    fn fetch_while_is_yaml_non_space(&mut self, out: &mut String) -> usize {
        self.0.fetch_while_is_yaml_non_space(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::{Interrupted, Limit, run};
    use saphyr_parser::Parser;
    use std::rc::Rc;

    struct Exceeded;

    impl Limit for Exceeded {
        fn is_exceeded(&self) -> bool {
            true
        }
    }

    #[test]
    fn the_parser_itself_passes_checkpoints() {
        let text = format!("[{}]", "a,".repeat(1000));
        let parse = || Parser::new(PausingInput::new(&text)).all(|event| event.is_ok());
        assert_eq!(run(Rc::new(Exceeded), parse), Err(Interrupted));
        assert!(parse(), "outside of a limited computation it reads on");
    }
}
