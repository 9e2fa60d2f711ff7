//! Kill -9.
