//! The syntax tree. Every node has an id, by which the checker records types and references.

use std::sync::Arc;

/// Identifies a node of one tree; ids are dense.
pub(crate) type Id = usize;

/// A node of the syntax tree, in which macros are already expanded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub id: Id,
    /// Offset in code points, where errors about the node point to.
    pub at: u32,
    pub kind: ExprKind,
}

impl Expr {
    /// Visits the nodes directly below, in the order in which they are evaluated.
    pub(crate) fn children<'e>(&'e self, visit: &mut dyn FnMut(&'e Self)) {
        match &self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select(select) => visit(&select.operand),
            ExprKind::Call(call) => call.target.iter().chain(&call.args).for_each(visit),
            ExprKind::List(elements) => elements.iter().for_each(|el| visit(&el.value)),
            ExprKind::Map(entries) => {
                for entry in entries {
                    visit(&entry.key);
                    visit(&entry.value);
                }
            }
            ExprKind::Struct(of) => of.fields.iter().for_each(|f| visit(&f.value)),
            ExprKind::Fold(fold) => {
                let parts = [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result];
                parts.into_iter().for_each(visit);
            }
        }
    }

    /// Whether the field is selected from the name anywhere in here.
    pub(crate) fn selects(&self, name: &str, field: &str) -> bool {
        // Names of loop variables count as well; the answer is only used to decide what has to be supplied, so too
        // often is safe.
        let of = |e: &Self| matches!(&e.kind, ExprKind::Ident(ident) if **ident == *name);
        let mut found = match &self.kind {
            ExprKind::Select(select) => of(&select.operand) && &*select.field == field,
            // `a.?b` is a call with the field as a string literal.
            ExprKind::Call(call) => match call.args.as_slice() {
                [operand, member] if &*call.function == op::OPT_SELECT => {
                    of(operand) && matches!(&member.kind, ExprKind::Literal(Literal::String(s)) if &**s == field)
                }
                _ => false,
            },
            _ => false,
        };
        // No early exit: `children` visits all, but a found answer stops the recursion below.
        self.children(&mut |child| found = found || child.selects(name, field));
        found
    }
}

/// The kinds of expressions, each with its operands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Ident(Arc<str>),
    Select(Box<Select>),
    Call(Box<Call>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    Struct(Box<Struct>),
    Fold(Box<Fold>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Select {
    pub operand: Expr,
    pub field: Arc<str>,
    /// `has(operand.field)`
    pub test: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub target: Option<Expr>,
    pub function: Arc<str>,
    pub args: Vec<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Element {
    pub value: Expr,
    pub optional: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

/// The construction of an object: `Object.spec{replicas: 3}`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Struct {
    pub name: Arc<str>,
    pub fields: Vec<StructField>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StructField {
    /// Where the colon is.
    pub at: u32,
    pub name: Arc<str>,
    pub value: Expr,
    pub optional: bool,
}

/// A loop over a list or map that folds its elements into an accumulator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fold {
    pub range: Expr,
    pub var: Arc<str>,
    /// The second variable: for lists the element, for maps the value.
    pub var2: Option<Arc<str>>,
    pub accumulator: Arc<str>,
    pub init: Expr,
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

/// Names of the operators as functions.
pub(crate) mod op {
    pub(crate) const CONDITIONAL: &str = "_?_:_";
    pub(crate) const AND: &str = "_&&_";
    pub(crate) const OR: &str = "_||_";
    pub(crate) const NOT: &str = "!_";
    pub(crate) const NEGATE: &str = "-_";
    pub(crate) const EQUALS: &str = "_==_";
    pub(crate) const NOT_EQUALS: &str = "_!=_";
    pub(crate) const ADD: &str = "_+_";
    pub(crate) const INDEX: &str = "_[_]";
    pub(crate) const OPT_INDEX: &str = "_[?_]";
    pub(crate) const OPT_SELECT: &str = "_?._";
    pub(crate) const IN: &str = "@in";
    pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
}
