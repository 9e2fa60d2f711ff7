//! Type parameters and what they stand for.

use crate::types::Type;

/// Assigns types to type parameters while an expression is checked.
#[derive(Default)]
pub(crate) struct Unifier {
    bound: Vec<Option<Type>>,
    /// Parameters in the order in which they were bound, so that a failed attempt can be undone.
    trail: Vec<usize>,
}

/// How many parameters an overload has at most.
const PER_OVERLOAD: usize = 4;
/// Types are nested no deeper than expressions are.
const MAX_DEPTH: usize = 256;

impl Unifier {
    /// A parameter that stands for nothing yet.
    pub fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(self.bound.len() as u32 - 1)
    }

    /// Parameters for one use of an overload; returns the first.
    pub fn reserve(&mut self) -> u32 {
        let first = self.bound.len();
        self.bound.resize(first + PER_OVERLOAD, None);
        first as u32
    }

    /// The type with its parameters replaced by those from `first`.
    pub fn instance(&self, t: &Type, first: u32) -> Type {
        replace(t, &|n| Type::Param(first + n))
    }

    /// What a parameter stands for, or else the type itself.
    pub fn resolve(&self, t: &Type) -> Type {
        let mut t = t;
        while let Type::Param(n) = t {
            match self.bound.get(*n as usize).and_then(Option::as_ref) {
                Some(next) => t = next,
                None => break,
            }
        }
        t.clone()
    }

    /// The type without parameters: those that stand for nothing are dyn.
    pub fn close(&self, t: &Type) -> Type {
        self.close_to(t, 0)
    }

    fn close_to(&self, t: &Type, depth: usize) -> Type {
        if depth > MAX_DEPTH {
            return Type::Dyn;
        }
        let inner = |t: &Type| self.close_to(t, depth + 1);
        match self.resolve(t) {
            Type::Param(_) => Type::Dyn,
            Type::List(of) => Type::list(inner(&of)),
            Type::Optional(of) => Type::optional(inner(&of)),
            Type::Map(of) => Type::map(inner(&of.0), inner(&of.1)),
            other => other,
        }
    }

    pub fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mark = self.trail.len();
        let all = from.iter().zip(to).all(|(f, t)| self.unify(f, t, 0));
        if !all {
            self.undo(mark);
        }
        all
    }

    /// True if a value of type `from` is acceptable as `to`; binds parameters.
    pub fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn undo(&mut self, mark: usize) {
        for n in self.trail.drain(mark..) {
            self.bound[n] = None;
        }
    }

    fn bind(&mut self, n: u32, to: Type) {
        self.bound[n as usize] = Some(to);
        self.trail.push(n as usize);
    }

    fn unify(&mut self, from: &Type, to: &Type, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return true;
        }
        let (from, to) = (self.resolve(from), self.resolve(to));
        match (&from, &to) {
            (Type::Param(a), Type::Param(b)) if a == b => true,
            (_, Type::Param(n)) if !mentions(self, &from, *n, 0) => {
                self.bind(*n, from.clone());
                true
            }
            (Type::Param(n), _) if !mentions(self, &to, *n, 0) => {
                self.bind(*n, to.clone());
                true
            }
            (a, b) if a.is_open() || b.is_open() => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b, depth + 1),
            (Type::Map(a), Type::Map(b)) => self.unify(&a.0, &b.0, depth + 1) && self.unify(&a.1, &b.1, depth + 1),
            (Type::Null, Type::Object(_) | Type::Opaque(_) | Type::Duration | Type::Timestamp) => true,
            (a, b) => a == b,
        }
    }
}

fn mentions(unifier: &Unifier, t: &Type, n: u32, depth: usize) -> bool {
    depth > MAX_DEPTH
        || match unifier.resolve(t) {
            Type::Param(m) => m == n,
            Type::List(of) | Type::Optional(of) => mentions(unifier, &of, n, depth + 1),
            Type::Map(of) => mentions(unifier, &of.0, n, depth + 1) || mentions(unifier, &of.1, n, depth + 1),
            _ => false,
        }
}

fn replace(t: &Type, with: &dyn Fn(u32) -> Type) -> Type {
    match t {
        Type::Param(n) => with(*n),
        Type::List(of) => Type::list(replace(of, with)),
        Type::Optional(of) => Type::optional(replace(of, with)),
        Type::Map(of) => Type::map(replace(&of.0, with), replace(&of.1, with)),
        other => other.clone(),
    }
}
