//! A recursive-descent parser. The entry point is [`parse`]. `operators` parses operators by precedence,
//! `operands` their operands; `macros` expands macros while their calls are parsed, and `recovery` decides
//! how parsing continues after an error.

pub(crate) mod macros;
mod operands;
mod operators;
mod recovery;

use crate::ast::{Call, Expr, ExprKind, Literal};
use crate::lexer::{Lexeme, Lexer, Token};
use crate::source::Issues;

/// Maximum length of an expression in code points.
const MAX_SIZE: usize = 100_000;
/// Maximum nesting of an expression, counting each operand of a chain of operators.
const MAX_DEPTH: usize = 250;
/// Maximum depth of the tree after macros are expanded.
const MAX_EXPANDED: usize = 400;

/// The errors of the parser are found one at a time; those of the lexer all at once.
type Parsed<T> = Result<T, (u32, String)>;

/// A tree, and how many ids it uses.
pub(crate) struct Tree {
    pub root: Expr,
    pub ids: usize,
}

/// Parses an expression; `cel.bind` is a macro if `binds` is true.
pub(crate) fn parse(source: &str, binds: bool) -> Result<Tree, Issues> {
    let chars: Vec<char> = source.chars().collect();
    if chars.len() > MAX_SIZE {
        let size = chars.len();
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}");
        return Err(Issues::unplaced(message));
    }
    let (lexemes, mut errors) = Lexer::new(&chars).run();
    let mut parser = Parser {
        chars: &chars,
        binds,
        lexemes,
        at: 0,
        depth: 0,
        ids: 0,
        recovering: false,
        open: Vec::new(),
        errors: Vec::new(),
    };
    let root = parser.whole().map_err(|why| {
        // While recovering, errors are consequences of an assumed token; `u32::MAX` marks errors without a place.
        if parser.recovering && why.0 != u32::MAX {
            recovery::SILENT
        } else {
            why
        }
    });
    errors.append(&mut parser.errors);
    match root {
        Ok(root) if errors.is_empty() && is_deep(&root, 0) => Err(Issues::unplaced(too_deep())),
        Ok(root) if errors.is_empty() => Ok(Tree { root, ids: parser.ids }),
        Err((u32::MAX, message)) => Err(Issues::unplaced(message)),
        root => {
            errors.extend(root.err().filter(|why| *why != recovery::SILENT));
            Err(Issues::place(source, errors))
        }
    }
}

fn too_deep() -> String {
    format!("expression recursion limit exceeded: {MAX_DEPTH}")
}

/// True if macros made the tree too deep. Each pass over the tree recurses, and nested loops of this depth
/// would exceed any cost limit.
fn is_deep(e: &Expr, depth: usize) -> bool {
    let mut deep = depth > MAX_EXPANDED;
    // Stops descending once the limit is exceeded.
    e.children(&mut |child| deep = deep || is_deep(child, depth + 1));
    deep
}

pub(crate) struct Parser<'s> {
    chars: &'s [char],
    pub binds: bool,
    lexemes: Vec<Lexeme>,
    at: usize,
    depth: usize,
    ids: usize,
    /// True after a missing token was assumed, until the next expected token is found. Errors in between are
    /// not reported.
    recovering: bool,
    /// The closing brackets still expected here, the innermost last.
    open: Vec<&'static str>,
    pub errors: Vec<(u32, String)>,
}

impl Parser<'_> {
    fn whole(&mut self) -> Parsed<Expr> {
        self.start_of_operand(&[])?;
        let root = self.expr()?;
        if *self.token() == Token::Eof {
            return Ok(root);
        }
        // A single superfluous token at the end is skipped, as ANTLR does.
        if self.token_after() == Some(&Token::Eof) {
            let unwanted = self.complaint("extraneous", "<EOF>");
            self.report(unwanted);
            return Ok(root);
        }
        Err(self.complaint("mismatched", "<EOF>"))
    }

    fn token(&self) -> &Token {
        &self.lexemes[self.at].token
    }

    fn start(&self) -> u32 {
        self.lexemes[self.at].start
    }

    fn text(&self) -> String {
        let lexeme = &self.lexemes[self.at];
        if lexeme.token == Token::Eof {
            return "<EOF>".to_owned();
        }
        self.chars[lexeme.start as usize..lexeme.end as usize].iter().collect()
    }

    fn is(&self, punct: &str) -> bool {
        matches!(self.token(), Token::Punct(p) if *p == punct)
    }

    /// Moves on and returns the offset of the token passed.
    fn advance(&mut self) -> u32 {
        let at = self.start();
        // A token was consumed, so parsing is in step again.
        self.recovering = false;
        if *self.token() != Token::Eof {
            self.at += 1;
        }
        at
    }

    fn accept(&mut self, punct: &str) -> Option<u32> {
        self.is(punct).then(|| self.advance())
    }

    pub(crate) fn node(&mut self, at: u32, kind: ExprKind) -> Expr {
        self.ids += 1;
        Expr {
            id: self.ids - 1,
            at,
            kind,
        }
    }

    pub(crate) fn call(&mut self, at: u32, function: &str, args: Vec<Expr>) -> Expr {
        let call = Call {
            target: None,
            function: function.into(),
            args,
        };
        self.node(at, ExprKind::Call(Box::new(call)))
    }

    pub(crate) fn ident(&mut self, at: u32, name: &str) -> Expr {
        self.node(at, ExprKind::Ident(name.into()))
    }

    pub(crate) fn literal(&mut self, at: u32, literal: Literal) -> Expr {
        self.node(at, ExprKind::Literal(literal))
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err((u32::MAX, too_deep()));
        }
        Ok(())
    }
}
